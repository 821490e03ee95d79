import copy

import pytest
import torch
from torch import Tensor, nn

from tuneparts.errors import ConfigError
from tuneparts.models import NETS
from tuneparts.pwfn import sigma
from tuneparts.pwfn.conversion import layers, tensors, to_gaussian, to_plain
from tuneparts.pwfn.gaussian import GaussianConv2d, GaussianLinear


def test_means_give_the_logits_of_the_plain_net(net: nn.Sequential, x_BCHW: Tensor) -> None:
    expected = copy.deepcopy(net)(x_BCHW)
    assert sorted(to_gaussian(net)) == ["0", "3", "4", "6"]
    assert torch.equal(net(x_BCHW), expected)
    assert [type(layer) for layer in layers(net).values()] == [GaussianConv2d] * 3 + [
        GaussianLinear
    ]


def test_export_gives_plain_layers_with_the_same_logits(net: nn.Sequential, x_BCHW: Tensor) -> None:
    names = {name: value.shape for name, value in net.state_dict().items()}
    types = [type(module) for module in net]
    to_gaussian(net)
    sigma.initialise(net)
    with torch.no_grad():
        for tensor in tensors(net).values():
            tensor.mu.mul_(1.5)
    net.eval()
    plain = to_plain(net)
    assert torch.equal(plain(x_BCHW), net(x_BCHW))
    assert {name: value.shape for name, value in plain.state_dict().items()} == names
    assert [type(module) for module in plain] == types
    assert not plain.training
    with torch.no_grad():
        plain[6].weight.zero_()
    assert tensors(net)["6.weight"].mu.abs().sum() > 0


@pytest.mark.parametrize("name", ["mnist_cnn", "resnet18", "mobilenet_v2", "fixup_resnet8"])
def test_every_kind_of_net_converts(name: str) -> None:
    known = {"fixup_resnet8": ("fixup_resnet", {"depth": 8})}
    net_name, sizes = known.get(name, (name, {}))
    if net_name == "resnet18":
        sizes = {"width": 4}
    plain = NETS[net_name](name=net_name, **sizes).build((3, 32, 32), 10).eval()
    gaussian = copy.deepcopy(plain)
    to_gaussian(gaussian)
    assert not any(type(module) in {nn.Linear, nn.Conv2d} for module in gaussian.modules())
    x_BCHW = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(gaussian(x_BCHW), plain(x_BCHW))


def test_a_layer_under_two_names_is_converted_once(x_BCHW: Tensor) -> None:
    linear = nn.Linear(4, 4)
    net = nn.Sequential(linear, nn.ReLU(), linear)
    to_gaussian(net)
    assert net[0] is net[2]
    assert len(tensors(net)) == 2


def test_what_cannot_be_converted_is_refused() -> None:
    class Odd(nn.Linear):
        pass

    with pytest.raises(ConfigError, match="at least one Linear or Conv2d"):
        to_gaussian(nn.Sequential(nn.ReLU()))
    net = nn.Sequential(nn.Linear(2, 2), Odd(2, 2))
    with pytest.raises(ConfigError, match="subclasses"):
        to_gaussian(net)
    assert type(net[0]) is nn.Linear
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    with pytest.raises(ConfigError, match="share one"):
        to_gaussian(tied)
