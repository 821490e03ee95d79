"""Lane forms of nets: what the nets say themselves, forward and backward, in float64."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from tuneparts.errors import ConfigError
from tuneparts.models import (
    DigitsCnn,
    FixupResNet,
    Mlp,
    MobileNetV2,
    NetConfig,
    ResNet9,
    ResNet18,
    WideResNet,
)
from tuneparts.training.packed.layout import stacked, wide
from tuneparts.training.packed.net import LaneNet

LANES = 3


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


class OwnNet(nn.Module):
    """Code of its own, which only `vmap` can map."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3)
        self.norm = nn.LayerNorm(12)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv(x).flatten(1)
        return self.norm(h.view(len(x), 12)[:, :12])


class OwnNorm(nn.Module):
    """Writes statistics in code of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(32)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.flatten(1)) * 2


def own_norm() -> nn.Module:
    return nn.Sequential(OwnNorm(), nn.Linear(32, 4))


def own_among_known() -> nn.Module:
    block = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), nn.Softsign())
    return nn.Sequential(block, nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(32, 4))


def built(config: NetConfig) -> Callable[[], nn.Module]:
    return lambda: config.build((2, 8, 8), 4)


NETS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "mlp": (built(Mlp(widths=(5,))), 8),
    "digits_cnn": (built(DigitsCnn(channels=(3, 4), hidden=5)), 8),
    "fixup": (built(FixupResNet(planes=3)), 8),
    "wide": (built(WideResNet(depth=10)), 8),
    "wide_identity": (built(WideResNet(depth=10, skip="identity")), 8),
    "resnet9": (built(ResNet9(width=4)), 8),
    "resnet18": (built(ResNet18(width=3, stem_pool=True)), 8),
    "mobilenet": (built(MobileNetV2(width=0.1)), 8),
    "own": (OwnNet, 4),
    "own_norm": (own_norm, 4),
    "own_among_known": (own_among_known, 4),
}


@pytest.mark.parametrize("name", NETS)
def test_a_lane_net_gives_what_its_nets_give_with_their_gradients(name: str) -> None:
    build, side = NETS[name]
    torch.manual_seed(0)
    nets, alone = [build() for _ in range(LANES)], [build() for _ in range(LANES)]
    for net in nets:
        for parameter in net.parameters():  # FixUp starts at zero
            nn.init.normal_(parameter, std=0.3)
    for net, other in zip(nets, alone, strict=True):
        other.load_state_dict(net.state_dict())
    x_PNCHW = torch.randn(LANES, 6, 2, side, side)
    packed = LaneNet(nets, x_PNCHW[0, :2])
    for is_shared in (True, False):
        x = x_PNCHW[:1].expand_as(x_PNCHW) if is_shared else x_PNCHW
        given = x[0] if is_shared else wide(x)
        found = packed(given, is_shared=is_shared)
        wanted = torch.stack([net(one) for net, one in zip(alone, x, strict=True)])
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-10)
        weight = torch.randn_like(found)
        gradients = torch.autograd.grad((found * weight).sum(), packed.stack.parameters)
        for lane, net in enumerate(alone):
            own = torch.autograd.grad((wanted[lane] * weight[lane]).sum(), list(net.parameters()))
            scale = max(float(one.abs().max()) for one in own)  # norms of few examples amplify
            for one, both in zip(own, gradients, strict=True):
                torch.testing.assert_close(both[lane], one, rtol=1e-8, atol=1e-9 * scale)
    for net, other in zip(nets, alone, strict=True):  # the statistics of norms
        for one, both in zip(other.buffers(), net.buffers(), strict=True):
            torch.testing.assert_close(both, one)


def test_layouts_are_each_others_inverse() -> None:
    x = torch.randn(3, 4, 2, 5, 6)
    assert wide(x).is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(stacked(wide(x), 3), x)


class OwnDropout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.drop = nn.Linear(3, 3), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.linear(x))


class Wrong(nn.Linear):
    """Looks at the other examples' mean, as if it were a lane: right for vmap."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - x.mean(dim=0))


def test_a_layer_that_looks_at_its_whole_batch_is_mapped_by_lane() -> None:
    nets = [nn.Sequential(Wrong(3, 2)) for _ in range(LANES)]
    x = torch.randn(5, 3)
    packed = LaneNet(nets, x)
    torch.testing.assert_close(packed(x), torch.stack([net(x) for net in nets]))


def test_dropout_inside_code_of_its_own_is_refused_by_name() -> None:
    from tuneparts.training.hyper import HypersConfig

    nets = [nn.Sequential(OwnDropout()) for _ in range(LANES)]
    for net in nets:
        HypersConfig().build(learnable=False, net=net, in_shape=(3,))
    with pytest.raises(ConfigError, match=r"OwnDropout.*packed=1"):
        LaneNet(nets, torch.randn(2, 3))


def test_what_cannot_be_mapped_is_refused_by_name() -> None:
    class Branches(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) if float(x.sum()) > 0 else x

    nets = [nn.Sequential(Branches(3, 3)) for _ in range(LANES)]
    with pytest.raises(ConfigError, match=r"fails for .*packed=1"):
        LaneNet(nets, torch.randn(2, 3))
