import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, group_norm, max_pool2d, relu

from tuneparts.core import seeding
from tuneparts.models.resnet9 import ResNet9


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_the_net_is_the_written_out_formula_at_32_pixels(groups):
    with seeding.isolated(0, "init"):
        net = ResNet9(width=4, groups=groups).build((3, 32, 32), 10).double()
    x_in = torch.randn(2, 3, 32, 32, generator=seeding.torch_generator(0, "x"), dtype=torch.float64)
    weights = iter([m.weight for m in net.modules() if isinstance(m, nn.Conv2d)])

    def conv(x):
        return relu(group_norm(conv2d(x, next(weights), padding=1), groups))

    x = conv(x_in)
    x = max_pool2d(conv(x), 2)
    x = x + conv(conv(x))
    x = max_pool2d(conv(x), 2)
    x = max_pool2d(conv(x), 2)
    x = x + conv(conv(x))
    x = max_pool2d(x, 4).flatten(1)
    expected = 0.125 * x @ net.classifier.weight.T
    torch.testing.assert_close(net(x_in), expected, rtol=1e-10, atol=1e-12)
    assert next(weights, None) is None


def test_dropout_sits_between_the_convolutions_of_each_residual_block():
    with torch.device("meta"):
        net = ResNet9().build((3, 32, 32), 10)
    names = [name for name, m in net.named_modules() if isinstance(m, nn.Dropout)]
    assert names == ["residual1.drop", "residual3.drop"]
    assert [name for name, _ in net.residual1.named_children()] == ["conv1", "drop", "conv2"]
