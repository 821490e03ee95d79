"""Packed nets: what the nets give themselves, forward and backward, in float64."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from tuneparts.nets import (
    DigitsCnn,
    FixupResNet,
    Mlp,
    MobileNetV2,
    NetConfig,
    ResNet9,
    ResNet18,
    WideResNet,
)
from tuneparts.training.pack import _PackedNet

WIDTH = 4
SLOTS = (0, 1, 3)


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


class OwnNet(nn.Module):
    """Code of its own, with statistics, which only `vmap` can map."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, padding_mode="circular", padding=1)
        self.norm = nn.BatchNorm1d(3 * 64)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.conv(x).flatten(1))
        return h - h.mean(dim=0)  # of its own examples


def every_layer() -> nn.Module:
    relu = nn.ReLU()  # one layer in two places
    first = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), relu)
    second = nn.Sequential(nn.Conv2d(4, 4, 3, groups=2, bias=False), relu, nn.MaxPool2d(2))
    return nn.Sequential(first, second, nn.Flatten(), nn.Linear(36, 4, bias=False))


def normed() -> nn.Module:
    first = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.GroupNorm(2, 4))
    return nn.Sequential(first, nn.Flatten(), nn.Linear(256, 4))


def tied() -> nn.Module:
    layer = nn.Linear(128, 128)
    return nn.Sequential(nn.Flatten(), layer, nn.GELU(), layer)


def built(config: NetConfig) -> Callable[[], nn.Module]:
    return lambda: config.build((2, 8, 8), 4)


NETS: dict[str, tuple[Callable[[], nn.Module], bool]] = {
    "mlp": (built(Mlp(widths=(5,))), True),
    "digits_cnn": (built(DigitsCnn(channels=(3, 4), hidden=5)), True),
    "every_layer": (every_layer, True),
    "normed": (normed, False),
    "fixup": (built(FixupResNet(planes=3)), False),
    "wide": (built(WideResNet(depth=10)), False),
    "resnet9": (built(ResNet9(width=4)), False),
    "resnet18": (built(ResNet18(width=3, stem_pool=True)), False),
    "mobilenet": (built(MobileNetV2(width=0.1)), False),
    "own": (OwnNet, False),
    "tied": (tied, False),
}


@pytest.mark.parametrize("is_shared", [True, False], ids=["shared", "own inputs"])
@pytest.mark.parametrize("name", NETS)
def test_a_packed_net_gives_what_its_nets_give_with_their_gradients(
    name: str, is_shared: bool
) -> None:
    build, has_forms = NETS[name]
    torch.manual_seed(0)
    nets, alone = {slot: build() for slot in SLOTS}, {slot: build() for slot in SLOTS}
    for slot, net in nets.items():
        for parameter in net.parameters():  # FixUp starts at zero
            nn.init.normal_(parameter, std=0.3)
        alone[slot].load_state_dict(net.state_dict())
    x_PNCHW = torch.randn(WIDTH, 6, 2, 8, 8)
    x_PNCHW = x_PNCHW[:1].expand_as(x_PNCHW) if is_shared else x_PNCHW
    packed = _PackedNet(nets, WIDTH, 4)
    assert packed.has_forms == has_forms
    found = packed(x_PNCHW[0] if is_shared else x_PNCHW)
    weight = torch.randn_like(found)
    stacked = [packed.tensors[key] for key, _ in packed._first.named_parameters()]
    gradients = torch.autograd.grad((found * weight).sum(), stacked)
    for slot, net in alone.items():
        wanted = net(x_PNCHW[slot])
        torch.testing.assert_close(found[slot], wanted, rtol=1e-9, atol=1e-10)
        own = torch.autograd.grad((wanted * weight[slot]).sum(), list(net.parameters()))
        scale = max(float(one.abs().max()) for one in own)  # norms of few examples amplify
        for one, both in zip(own, gradients, strict=True):
            torch.testing.assert_close(both[slot], one, rtol=1e-8, atol=1e-9 * scale)
        for one, both in zip(net.buffers(), nets[slot].buffers(), strict=True):  # statistics
            torch.testing.assert_close(both, one)
