import pytest
import torch
from torch import nn

from tuneparts.errors import ConfigError
from tuneparts.models import DigitsCnn, MobileNetV2, WideResNet
from tuneparts.superweights.layers import layers_of


@pytest.mark.parametrize(
    ("depth", "width", "num", "size"),
    [(28, 10, 28, 36_454_832), (16, 7, 16, 8_385_200), (10, 1, 9, 76_720), (22, 1, 21, 270_256)],
)
def test_a_wide_resnet_shares_all_its_convolutions(
    depth: int, width: int, num: int, size: int
) -> None:
    with torch.device("meta"):
        net = WideResNet(depth=depth, width=width).build((3, 32, 32), 100)
    layers = layers_of(net, 0)
    assert (len(layers), sum(layer.size for layer in layers)) == (num, size)
    for layer in layers:
        assert net.get_submodule(layer.name).weight.shape == layer.shape


def test_kinds_keep_linear_kernels_and_groups_apart() -> None:
    with torch.device("meta"):
        digits = layers_of(DigitsCnn().build((1, 8, 8), 10), 0)
        mobile = layers_of(MobileNetV2().build((3, 32, 32), 10), 1)
    assert [layer.kind for layer in digits] == ["conv3x3", "conv3x3", "linear"]
    assert {layer.kind for layer in mobile} == {"conv3x3", "conv1x1", "grouped3x3"}
    assert digits[2].shape == (64, 128)
    assert digits[2].fan_in == 128
    assert digits[1].fan_in == 16 * 9


def test_a_net_of_a_head_alone_is_refused() -> None:
    with pytest.raises(ConfigError, match="member 3 has 1 such"):
        layers_of(nn.Sequential(nn.Linear(3, 2)), 3)
