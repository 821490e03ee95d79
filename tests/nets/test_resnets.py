"""ResNets and MobileNets are the formulas of their papers, and torchvision's nets."""

import pytest
import torch
from torch import nn
from torch.nn.functional import avg_pool2d, batch_norm, conv2d, pad, relu

from tuneparts.core import _torchvision, seeding
from tuneparts.nets import FixupResNet, MobileNetV2, ResNet18, WideResNet
from tuneparts.nets._resnets import FixupBlock, PreActivationBlock
from tuneparts.nets.layers import SCALARS, Bias, ScalarMultiplier, _PaddedShortcut, names_of


def build(depth: int, planes: int = 16) -> nn.Sequential:
    with seeding.isolated(0, "init"):
        return FixupResNet(depth=depth, planes=planes).build((3, 32, 32), 10)


def randn(*shape: int, stream: str = "x", dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=seeding.torch_generator(0, stream), dtype=dtype)


@pytest.mark.parametrize("depth", [8, 14, 20])
def test_logits_are_exactly_zero_at_the_start(depth):
    assert torch.count_nonzero(build(depth, planes=8)(randn(2, 3, 32, 32))) == 0


def test_a_block_starts_as_the_identity_up_to_relu():
    x = randn(2, 16, 9, 9)
    kept, halved = build(8).stage1_block1, build(8).stage2_block1
    assert torch.equal(kept(x), x.clamp(min=0))
    out = halved(x)
    assert torch.equal(out[:, :16], x[:, :, ::2, ::2].clamp(min=0))
    assert torch.count_nonzero(out[:, 16:]) == 0
    assert out.shape == (2, 32, 5, 5)


@pytest.mark.parametrize(("num_in", "num_out", "stride"), [(3, 3, 1), (3, 6, 2)])
def test_a_fixup_block_is_the_papers_formula(num_in, num_out, stride):
    block = FixupBlock(num_in, num_out, stride).double()
    for i, parameter in enumerate(block.parameters()):
        parameter.data = randn(*parameter.shape, stream=f"p{i}", dtype=torch.float64)
    x = randn(2, num_in, 7, 7, dtype=torch.float64)

    b1a, b1b, b2a, b2b = (getattr(block, f"bias{i}").bias.item() for i in ("1a", "1b", "2a", "2b"))
    out = relu(conv2d(x + b1a, block.conv1.weight, stride=stride, padding=1) + b1b)
    out = conv2d(out + b2a, block.conv2.weight, padding=1) * block.scale.scale.item() + b2b
    if stride == 2:
        small = avg_pool2d(x + b1a, kernel_size=1, stride=2)
        shortcut = torch.cat([small, torch.zeros_like(small)], dim=1)
    else:
        shortcut = x
    torch.testing.assert_close(block(x), relu(out + shortcut), rtol=1e-12, atol=1e-12)


def test_first_convolutions_have_the_papers_variance():
    net = build(14)
    for block in (layer for layer in net if isinstance(layer, FixupBlock)):
        weight = block.conv1.weight
        expected = 2 / (weight.shape[0] * 9) / 6  # six blocks
        # The relative error of a variance from n draws is about sqrt(2 / n); five of these.
        tolerance = 5 * (2 / weight.numel()) ** 0.5
        assert abs(weight.square().mean().item() / expected - 1) < tolerance
        assert torch.count_nonzero(block.conv2.weight) == 0


def test_scalars_are_four_biases_and_a_scale_a_block_and_two_biases():
    net = build(14)
    assert sum(type(m) is Bias for m in net.modules()) == 4 * 6 + 2
    assert sum(type(m) is ScalarMultiplier for m in net.modules()) == 6
    names = names_of(net, SCALARS)
    assert len(names) == len(set(names)) == 5 * 6 + 2
    parameters = dict(net.named_parameters())
    assert all(parameters[name].numel() == 1 for name in names)
    assert {name for name, p in parameters.items() if p.numel() == 1} == set(names)
    assert all(
        parameters[name].item() == (1.0 if name.endswith("scale.scale") else 0.0) for name in names
    )


def drawn(*shape: int, stream: str = "x") -> torch.Tensor:
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
def test_a_pre_activation_block_is_the_papers_formula(skip, num_in, num_out, stride):
    block = PreActivationBlock(num_in, num_out, stride, norm=nn.BatchNorm2d, skip=skip).double()
    for i, parameter in enumerate(block.parameters()):
        parameter.data = drawn(*parameter.shape, stream=f"p{i}")
    x = drawn(4, num_in, 7, 7)

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
    assert sum(isinstance(m, _PaddedShortcut) for m in net.modules()) == 3
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


def randomise(net: nn.Module) -> None:
    """Move norm affines and statistics away from 1 and 0, where mistakes would not show."""
    generator = seeding.torch_generator(0, "norm")
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight, module.running_mean, module.running_var):
                tensor.data.uniform_(0.5, 1.5, generator=generator)
            # Beyond both ends of ReLU6.
            module.bias.data.uniform_(-2, 8, generator=generator)


def assert_agree(ours: nn.Module, theirs: nn.Module, x: torch.Tensor) -> None:
    ours, theirs = ours.double().eval(), theirs.double().eval()
    randomise(theirs)
    source, target = theirs.state_dict(), ours.state_dict()
    assert [t.shape for t in source.values()] == [t.shape for t in target.values()]
    ours.load_state_dict(dict(zip(target, source.values(), strict=True)))
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-9, atol=1e-12)


def images(side: int) -> torch.Tensor:
    return torch.randn(
        2, 3, side, side, generator=seeding.torch_generator(0, "x"), dtype=torch.float64
    )


def test_resnet18_with_the_stem_exchanged():
    with seeding.isolated(0, "init"):
        theirs = _torchvision.load().models.resnet18(num_classes=10)
        theirs.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        pooled = ResNet18(stem_pool=True).build((3, 32, 32), 10)
        unpooled = ResNet18().build((3, 32, 32), 10)
    assert_agree(pooled, theirs, images(16))
    theirs.maxpool = nn.Identity()
    assert_agree(unpooled, theirs, images(16))


def test_mobilenet_v2_with_two_strides_taken_out():
    with seeding.isolated(0, "init"):
        # At widths below 0.5 rounding gives stages 1 and 2 equal channels, and the block that
        # lost its stride becomes residual; torchvision's twin would not know.
        theirs = _torchvision.load().models.mobilenet_v2(num_classes=10, width_mult=0.5)
        ours = MobileNetV2(width=0.5).build((3, 32, 32), 10)
    theirs.features[0][0].stride = (1, 1)
    theirs.features[2].conv[1][0].stride = (1, 1)
    assert_agree(ours, theirs, images(16))


def assert_variance(weight: torch.Tensor, expected: float) -> None:
    tolerance = 5 * (2 / weight.numel()) ** 0.5
    assert abs(weight.square().mean().item() / expected - 1) < tolerance


@pytest.mark.parametrize("config", [ResNet18(width=16), MobileNetV2(width=0.5)], ids=str)
def test_convolutions_start_as_torchvisions_do(config):
    with seeding.isolated(0, "init"):
        net = config.build((3, 32, 32), 10)
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            fan_out = layer.weight.shape[0] * layer.weight[0, 0].numel()
            assert_variance(layer.weight, 2 / fan_out)


def test_classifiers_start_as_torchvisions_do():
    with seeding.isolated(0, "init"):
        mobile = MobileNetV2(width=0.5).build((3, 32, 32), 10)
        resnet = ResNet18(width=16).build((3, 32, 32), 10)
    assert_variance(mobile.classifier.weight, 0.01**2)
    assert torch.count_nonzero(mobile.classifier.bias) == 0
    bound = 128**-0.5  # torch's own: uniform within 1 / sqrt(fan_in), the bias too
    assert 0.98 * bound < resnet.classifier.weight.abs().max().item() <= bound
    assert 0 < resnet.classifier.bias.abs().max().item() <= bound
