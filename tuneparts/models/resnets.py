"""ResNet-18, ResNet-9, and torchvision's ImageNet nets by name.

ResNet-18 (He et al. 2016) has a 3x3 stem, for 32x32 images. ResNet-9 is that of the DAWNBench
entries (Page 2018) with GroupNorm, as in Mlodozeniec et al. (2023), whose federated experiments put
dropout in the middle of each residual block; the slots are always there, at rate 0.
"""

from collections import OrderedDict

import torch
from torch import nn

from tuneparts.core import _torchvision
from tuneparts.core.errors import ConfigError
from tuneparts.models.config import Imagenet, ResNet9, ResNet18, image_shape
from tuneparts.models.layers import kaiming_normal


class _BasicBlock(nn.Module):
    """ReLU(conv - BN - ReLU - conv - BN, plus x); x through 1x1 conv - BN if its shape changes."""

    def __init__(self, num_in: int, num_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(num_in, num_out, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(num_out)
        self.conv2 = nn.Conv2d(num_out, num_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(num_out)
        self.shortcut = nn.Sequential()
        if stride != 1 or num_in != num_out:
            self.shortcut.append(nn.Conv2d(num_in, num_out, 1, stride=stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(num_out))

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """(B, C, H, W) to (B, C', H', W')."""
        out = torch.relu(self.norm1(self.conv1(x_BCHW)))
        return torch.relu(self.norm2(self.conv2(out)) + self.shortcut(x_BCHW))


def _resnet18(config: ResNet18, in_shape: tuple[int, ...], num_classes: int) -> nn.Sequential:
    """Build the net."""
    num_in, _, _ = image_shape(config, in_shape, least=1)
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        stem=nn.Conv2d(num_in, config.width, 3, padding=1, bias=False),
        stem_norm=nn.BatchNorm2d(config.width),
        stem_relu=nn.ReLU(),
    )
    if config.stem_pool:
        layers["stem_pool"] = nn.MaxPool2d(3, stride=2, padding=1)
    channels = config.width
    for stage in (1, 2, 3, 4):
        num_out = config.width * 2 ** (stage - 1)
        for i in (1, 2):
            stride = 2 if stage > 1 and i == 1 else 1
            layers[f"stage{stage}_block{i}"] = _BasicBlock(channels, num_out, stride)
            channels = num_out
    layers["pool"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    net = nn.Sequential(layers)
    kaiming_normal(net, "fan_out")
    # Added last: the classifier keeps torch's initialisation, as in the original.
    net.add_module("classifier", nn.Linear(channels, num_classes))
    return net


class _ResidualPair(nn.Module):
    """x plus two convolutions of it, with a dropout slot between them."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.conv1 = _conv(channels, channels, groups)
        self.drop = nn.Dropout(0.0)
        self.conv2 = _conv(channels, channels, groups)

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """(B, C, H, W) to the same shape."""
        out: torch.Tensor = self.conv2(self.drop(self.conv1(x_BCHW)))
        return x_BCHW + out


class _Multiply(nn.Module):
    """Multiplies by a fixed number."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape in, the same out."""
        return x * self.factor

    def extra_repr(self) -> str:
        """The argument, for printing."""
        return f"factor={self.factor}"


def _resnet9(config: ResNet9, in_shape: tuple[int, ...], num_classes: int) -> nn.Sequential:
    """Build the net; weights start at torch's own initialisation, as in the original."""
    num_in, _, _ = image_shape(config, in_shape, least=8)
    width, groups = config.width, config.groups
    return nn.Sequential(
        OrderedDict(
            stem=_conv(num_in, width, groups),
            stage1=_conv(width, 2 * width, groups),
            pool1=nn.MaxPool2d(2),
            residual1=_ResidualPair(2 * width, groups),
            stage2=_conv(2 * width, 4 * width, groups),
            pool2=nn.MaxPool2d(2),
            stage3=_conv(4 * width, 8 * width, groups),
            pool3=nn.MaxPool2d(2),
            residual3=_ResidualPair(8 * width, groups),
            # Equal to the original's 4x4 pooling at 32x32 inputs, and fit for other sizes.
            pool=nn.AdaptiveMaxPool2d(1),
            flatten=nn.Flatten(),
            classifier=nn.Linear(8 * width, num_classes, bias=False),
            multiply=_Multiply(0.125),
        )
    )


def _conv(num_in: int, num_out: int, groups: int) -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(num_in, num_out, 3, padding=1, bias=False),
            norm=nn.GroupNorm(groups, num_out),
            relu=nn.ReLU(),
        )
    )


def _imagenet(config: Imagenet, in_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Build the net."""
    channels, _, _ = image_shape(config, in_shape, least=32)
    if channels != 3:
        raise ConfigError(
            f"`{config.name}` takes images with 3 channels, but got {channels}. "
            "Use `resnet18` or `wide_resnet`, which take any number."
        )
    models = _torchvision.load().models
    net: nn.Module = models.get_model(
        config.name.removeprefix("imagenet_"), weights=None, num_classes=num_classes
    )
    for layer in net.modules():
        if isinstance(layer, nn.ReLU):
            layer.inplace = False  # activations may still be read by whoever hooks a layer
    return net
