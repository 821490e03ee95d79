import copy

import pytest
import torch
from torch import nn

from tuneparts.nets import DigitsCnn, FixupResNet, Mlp, ResNet18, WideResNet
from tuneparts.nets.survey import _is_quicker, channels_last, lay_out

CPU = torch.device("cpu")
LAST = torch.channels_last


class Viewed(nn.Module):
    """A net of one's own that takes the order of its activations for granted."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.linear = nn.Linear(4 * 6 * 6, 10)

    def forward(self, x):
        h = self.conv(x)
        return self.linear(h.view(len(h), -1))


class Flattened(Viewed):
    def forward(self, x):
        return self.linear(self.conv(x).flatten(1))


@pytest.mark.parametrize("channels", [1, 3])
def test_the_same_images_in_the_order_that_torch_recognises(channels):
    x = torch.rand(2, channels, 5, 4)
    y = channels_last(x)
    assert torch.equal(x, y)
    conv = nn.Conv2d(channels, 2, 3)
    assert conv(y).is_contiguous(memory_format=LAST)
    assert conv(y).is_contiguous(memory_format=LAST) != conv(x).is_contiguous(memory_format=LAST)
    assert channels_last(y).data_ptr() == y.data_ptr()


@pytest.mark.parametrize("config", [DigitsCnn(), FixupResNet(), WideResNet(depth=10)])
def test_values_and_gradients_do_not_depend_on_the_layout(config):
    torch.manual_seed(0)
    net = config.build((3, 8, 8), 10).double()
    for parameter in net.parameters():  # the zeros of FixUp would hide what stands before them
        nn.init.normal_(parameter, std=0.2)
    x = torch.rand(4, 3, 8, 8, dtype=torch.float64)
    twin = lay_out(copy.deepcopy(net), (3, 8, 8), CPU)
    assert _is_quicker(net, (3, 8, 8), CPU)
    found, wanted = twin(x), net(x)
    assert torch.allclose(found, wanted, rtol=1e-10, atol=1e-10)
    found.square().sum().backward()
    wanted.square().sum().backward()
    for mine, theirs in zip(twin.parameters(), net.parameters(), strict=True):
        assert torch.allclose(mine.grad, theirs.grad, rtol=1e-8, atol=1e-8)


def test_weights_and_states_stay_as_they_are():
    net = lay_out(DigitsCnn().build((1, 8, 8), 10), (1, 8, 8), CPU)
    state = net.state_dict()
    assert all(tensor.is_contiguous() for tensor in state.values())
    assert list(state) == list(DigitsCnn().build((1, 8, 8), 10).state_dict())


@pytest.mark.parametrize(
    ("net", "in_shape", "device"),
    [
        (Mlp().build((1, 8, 8), 10), (1, 8, 8), CPU),
        (ResNet18(width=64).build((3, 32, 32), 10), (3, 32, 32), CPU),  # 512 channels
        (DigitsCnn().build((1, 8, 8), 10), (1, 8, 8), torch.device("cuda")),
        (Viewed(), (1, 8, 8), CPU),
    ],
    ids=["no convolution", "wide", "another device", "a view of one's own"],
)
def test_where_it_does_not_pay_or_work_nothing_changes(net, in_shape, device):
    assert not _is_quicker(net, in_shape, device)
    before = torch.random.get_rng_state()
    lay_out(net, in_shape, device)
    assert not net._forward_pre_hooks
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_net_of_ones_own_has_it_where_it_works():
    net = Flattened()
    lay_out(net, (1, 8, 8), CPU)
    assert net._forward_pre_hooks
    lay_out(net, (1, 8, 8), CPU)  # twice is once
    assert len(net._forward_pre_hooks) == 1
    lay_out(net, (1, 8, 8), CPU, channels_last=False)
    assert not net._forward_pre_hooks


def test_it_works_under_vmap():
    net = lay_out(DigitsCnn().build((3, 8, 8), 10), (3, 8, 8), CPU)
    x = torch.rand(2, 3, 3, 8, 8)
    found = torch.func.vmap(net)(x)
    assert torch.allclose(found, torch.stack([net(one) for one in x]), atol=1e-5)


def test_strided_convolutions_of_few_channels_keep_theirs():
    assert not _is_quicker(ResNet18(width=2).build((3, 8, 8), 10), (3, 8, 8), CPU)
    assert _is_quicker(ResNet18(width=8).build((3, 8, 8), 10), (3, 8, 8), CPU)
