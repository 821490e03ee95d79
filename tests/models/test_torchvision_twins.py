"""Nets that differ from torchvision's in stem and strides only, held against the originals."""

import pytest
import torch
from torch import nn

from tuneparts.core import seeding, torchvision_door
from tuneparts.models import MobileNetV2, ResNet18


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
        theirs = torchvision_door.load().models.resnet18(num_classes=10)
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
        theirs = torchvision_door.load().models.mobilenet_v2(num_classes=10, width_mult=0.5)
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
