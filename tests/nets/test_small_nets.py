"""Small nets and ResNets are the formulas of their papers, written out."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, conv2d, gelu, group_norm, linear, max_pool2d, relu

from tuneparts.core import seeding
from tuneparts.nets import DigitsCnn, Mlp, MnistCnn, NetConfig, ResNet9, ResNet50Gn
from tuneparts.nets.layers import _kaiming_normal, _PaddedShortcut


def drawn(*shape: int) -> Tensor:
    generator = seeding.torch_generator(0, "x")
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def random_net(config: NetConfig, in_shape: tuple[int, ...]) -> tuple[nn.Module, list[Tensor]]:
    with seeding.isolated(0, "init"):
        net = config.build(in_shape, 3).double()
    for i, parameter in enumerate(net.parameters()):
        generator = seeding.torch_generator(0, "p", i)
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return net, list(net.parameters())


@pytest.mark.parametrize(("name", "activation"), [("relu", relu), ("gelu", gelu)])
@pytest.mark.parametrize("in_shape", [(12,), (3, 2, 2)])
def test_an_mlp(name, activation, in_shape):
    net, (w1, b1, w2, b2, w3, b3) = random_net(Mlp(widths=(5, 4), activation=name), in_shape)
    x = drawn(6, *in_shape)
    hidden = activation(linear(x.reshape(6, 12), w1, b1))
    expected = linear(activation(linear(hidden, w2, b2)), w3, b3)
    torch.testing.assert_close(net(x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("config", "in_shape", "padding"),
    [
        (DigitsCnn(channels=(3, 4), hidden=6), (1, 8, 8), 1),
        (MnistCnn(channels=(3, 4), hidden=(6, 5)), (2, 14, 14), 2),
    ],
    ids=["digits_cnn", "mnist_cnn of Table 9"],
)
def test_a_small_cnn(config, in_shape, padding):
    net, (w1, b1, w2, b2, *rest, w, b) = random_net(config, in_shape)
    x_in = drawn(5, *in_shape)
    x = max_pool2d(relu(conv2d(x_in, w1, b1, padding=padding)), 2)
    x = max_pool2d(relu(conv2d(x, w2, b2, padding=padding)), 2).flatten(1)
    for i in range(0, len(rest), 2):
        x = relu(linear(x, rest[i], rest[i + 1]))
    torch.testing.assert_close(net(x_in), linear(x, w, b), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_resnet9_at_32_pixels(groups):
    with seeding.isolated(0, "init"):
        net = ResNet9(width=4, groups=groups).build((3, 32, 32), 10).double()
    x_in = drawn(2, 3, 32, 32)
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


def test_dropout_is_between_the_convolutions_of_each_residual_block():
    with torch.device("meta"):
        net = ResNet9().build((3, 32, 32), 10)
    names = [name for name, m in net.named_modules() if isinstance(m, nn.Dropout)]
    assert names == ["residual1.drop", "residual3.drop"]
    assert [name for name, _ in net.residual1.named_children()] == ["conv1", "drop", "conv2"]


def test_resnet50_has_fifty_layers_and_skips_without_weights():
    with torch.device("meta"):
        net = ResNet50Gn().build((3, 64, 64), 200)
    assert sum(isinstance(m, nn.Conv2d | nn.Linear) for m in net.modules()) == 50
    assert sum(isinstance(m, _PaddedShortcut) for m in net.modules()) == 2
    assert all(m.kernel_size == (3, 3) for m in net.modules() if isinstance(m, nn.Conv2d))
    assert not any(isinstance(m, nn.BatchNorm2d) for m in net.modules())


@pytest.mark.parametrize("groups", [1, 2, 16])
def test_every_norm_has_the_asked_number_of_groups(groups):
    with torch.device("meta"):
        net = ResNet50Gn(num_per_stage=1, groups=groups).build((3, 64, 64), 200)
    assert [m.num_groups for m in net.modules() if isinstance(m, nn.GroupNorm)] == [groups] * 7


@pytest.mark.parametrize("num_new", [0, 1, 5])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("side", [1, 6, 7])
def test_a_padded_shortcut_is_pooling_and_concatenated_zeros(side, stride, num_new):
    x = torch.randn(2, 5, side, side + 1, generator=seeding.torch_generator(0, "x"))
    small = avg_pool2d(x, kernel_size=1, stride=stride)
    expected = torch.cat([small, small.new_zeros(2, num_new, *small.shape[2:])], dim=1)
    assert torch.equal(_PaddedShortcut(stride, num_new)(x), expected)


@pytest.mark.parametrize("config", [Mlp(), MnistCnn(), DigitsCnn()], ids=str)
def test_small_nets_start_kaiming_uniform_with_zero_biases(config):
    with seeding.isolated(0, "init"):
        net = config.build((1, 28, 28), 10)
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            bound = (6 / layer.weight[0].numel()) ** 0.5
            largest = layer.weight.abs().max().item()
            # The largest of n uniforms falls short of the bound by about bound / n.
            assert bound * (1 - 20 / layer.weight.numel()) < largest <= bound * (1 + 1e-6)
            # A uniform's square has relative standard deviation sqrt(4/5).
            tolerance = 5 * (0.8 / layer.weight.numel()) ** 0.5
            assert abs(3 * layer.weight.square().mean().item() / bound**2 - 1) < tolerance
            assert torch.count_nonzero(layer.bias) == 0


@pytest.mark.parametrize(("fan", "number"), [("fan_in", 8 * 25), ("fan_out", 64 * 25)])
def test_normal_has_variance_two_over_fan(fan, number):
    net = nn.Sequential(nn.Conv2d(8, 64, 5), nn.BatchNorm2d(64))
    nn.init.constant_(net[1].weight, 3.0)
    with seeding.isolated(0, "init"):
        _kaiming_normal(net, fan)
    weight = net[0].weight
    tolerance = 5 * (2 / weight.numel()) ** 0.5
    assert abs(weight.square().mean().item() * number / 2 - 1) < tolerance
    assert torch.count_nonzero(net[0].bias) == 0
    assert torch.equal(net[1].weight, torch.full((64,), 3.0))
