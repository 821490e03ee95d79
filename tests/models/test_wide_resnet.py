import pytest
import torch
from torch import nn
from torch.nn.functional import batch_norm, conv2d, pad, relu

from tuneparts.core import seeding
from tuneparts.models import WideResNet
from tuneparts.models.layers import PaddedShortcut
from tuneparts.models.wide_resnet import PreActivationBlock


def randn(*shape: int, stream: str = "x") -> torch.Tensor:
    generator = seeding.torch_generator(0, stream)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(
    ("depth", "width", "num_convs", "num_weights"),
    [
        (28, 12, 28, 52_488_624),
        (28, 10, 28, 36_454_832),
        (34, 8, 34, 29_528_496),
        (28, 7, 28, 17_868_464),
        (16, 4, 16, 2_742_704),
        (10, 2, 10, 301_488),
        (22, 1, 21, 270_256),
        (10, 1, 9, 76_720),
    ],
)
def test_convolutions_of_published_sizes(depth, width, num_convs, num_weights):
    with torch.device("meta"):
        net = WideResNet(depth=depth, width=width).build((3, 32, 32), 10)
    convolutions = [layer for layer in net.modules() if isinstance(layer, nn.Conv2d)]
    assert len(convolutions) == num_convs
    assert sum(layer.weight.numel() for layer in convolutions) == num_weights


@pytest.mark.parametrize("skip", ["conv", "identity"])
@pytest.mark.parametrize(("num_in", "num_out", "stride"), [(3, 3, 1), (3, 5, 1), (3, 6, 2)])
def test_a_block_is_the_papers_formula(skip, num_in, num_out, stride):
    block = PreActivationBlock(num_in, num_out, stride, norm=nn.BatchNorm2d, skip=skip).double()
    for i, parameter in enumerate(block.parameters()):
        parameter.data = randn(*parameter.shape, stream=f"p{i}")
    x = randn(4, num_in, 7, 7)

    def normed(x, norm):
        return batch_norm(x, None, None, norm.weight, norm.bias, training=True)

    active = relu(normed(x, block.norm1))
    out = conv2d(active, block.conv1.weight, stride=stride, padding=1)
    out = conv2d(relu(normed(out, block.norm2)), block.conv2.weight, padding=1)
    if (num_in, stride) == (num_out, 1):
        shortcut = x
    elif skip == "conv":
        shortcut = conv2d(active, block.shortcut.weight, stride=stride)
    else:
        shortcut = pad(x[:, :, ::stride, ::stride], (0, 0, 0, 0, 0, num_out - num_in))
    torch.testing.assert_close(block(x), out + shortcut, rtol=1e-10, atol=1e-10)


def test_identity_skips_have_no_weights():
    with torch.device("meta"):
        net = WideResNet(depth=10, width=2, skip="identity").build((3, 32, 32), 10)
    assert sum(isinstance(m, PaddedShortcut) for m in net.modules()) == 3
    assert all(m.kernel_size == (3, 3) for m in net.modules() if isinstance(m, nn.Conv2d))


def test_channels_and_resolution_of_each_stage():
    with torch.device("meta"):
        net = WideResNet(depth=16, width=2).build((3, 32, 32), 10)
        x, shapes = torch.empty(1, 3, 32, 32), {}
        for name, layer in net.named_children():
            x = layer(x)
            shapes[name] = tuple(x.shape[1:])
    assert shapes["stem"] == (16, 32, 32)
    assert shapes["stage1_block1"] == shapes["stage1_block2"] == (32, 32, 32)
    assert shapes["stage2_block1"] == shapes["stage2_block2"] == (64, 16, 16)
    assert shapes["stage3_block1"] == shapes["stage3_block2"] == (128, 8, 8)


def test_weights_start_at_variance_two_over_fan_in():
    with seeding.isolated(0, "init"):
        net = WideResNet(depth=10, width=2).build((3, 32, 32), 10)
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            fan_in = layer.weight[0].numel()
            tolerance = 5 * (2 / layer.weight.numel()) ** 0.5
            assert abs(layer.weight.square().mean().item() * fan_in / 2 - 1) < tolerance
    assert torch.count_nonzero(net.classifier.bias) == 0


def test_a_width_that_is_not_whole_rounds_the_channels_of_each_stage() -> None:
    net = WideResNet(depth=10, width=1.3).build((1, 8, 8), 10)
    stages = [net.get_submodule(f"stage{stage}_block1").conv2.out_channels for stage in (1, 2, 3)]
    assert stages == [21, 42, 83]
