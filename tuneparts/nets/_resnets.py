"""Residual nets for small images, and torchvision's ImageNet nets by name.

ResNet-18 (He et al. 2016) has a 3x3 stem. ResNet-9 is that of DAWNBench entries (Page 2018) with
GroupNorm, as in Mlodozeniec et al. (2023), whose federated experiments put dropout in the middle of
each residual block; the slots are always there, at rate 0.

Wide ResNet N-D (Zagoruyko & Komodakis 2016) has three stages of (N - 4) / 6 pre-activation blocks
with 16D, 32D and 64D channels. The block is open to other norms and to shortcuts without weights,
which Mlodozeniec et al. (2023) use.

ResNet-(6n+2) without normalisation (Zhang et al. 2019, FixUp) has three stages of n basic blocks.
Learnable scalars are around the convolutions, and at the start every block passes its input on,
so that the logits are zero.

MobileNetV2 (Sandler et al. 2018) is for 32x32 images: the stem and the second stage keep the
resolution, so that they end as 4x4 and not as 1x1. Weights and counts are those of the original.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import torch
from torch import nn

from tuneparts import nets
from tuneparts.core import _torchvision
from tuneparts.core.errors import ConfigError
from tuneparts.nets.layers import Bias, ScalarMultiplier, _kaiming_normal, _PaddedShortcut

_Layers = OrderedDict[str, nn.Module]
_Norm = Callable[[int], nn.Module]
"""Makes the normalisation layer of a number of channels."""
_Skip = Literal["conv", "identity"]


def _add_stages(
    layers: _Layers,
    channels: int,
    widths: Sequence[int],
    num_per_stage: int,
    block: Callable[[int, int, int], nn.Module],
) -> None:
    """Stages of blocks (channels in, channels out, stride), each but the first at half the size."""
    for stage, num_out in enumerate(widths, start=1):
        for i in range(1, num_per_stage + 1):
            stride = 2 if stage > 1 and i == 1 else 1
            layers[f"stage{stage}_block{i}"] = block(channels, num_out, stride)
            channels = num_out


class FixupBlock(nn.Module):
    """ReLU(scale * conv2(ReLU(conv1(x + b1) + b2) + b3) + b4 + shortcut)."""

    def __init__(self, num_in: int, num_out: int, stride: int) -> None:
        super().__init__()
        self.bias1a = Bias()
        self.conv1 = nn.Conv2d(num_in, num_out, 3, stride=stride, padding=1, bias=False)
        self.bias1b = Bias()
        self.bias2a = Bias()
        self.conv2 = nn.Conv2d(num_out, num_out, 3, padding=1, bias=False)
        self.scale = ScalarMultiplier()
        self.bias2b = Bias()
        changes = stride != 1 or num_in != num_out
        self.shortcut = _PaddedShortcut(stride, num_out - num_in) if changes else None

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        shifted = self.bias1a(x_BCHW)
        # In place: nothing else reads what these sums made.
        out = torch.relu_(self.bias1b(self.conv1(shifted)))
        out = self.bias2b(self.scale(self.conv2(self.bias2a(out))))
        # Only the changing shortcut sees the shifted input, as in the authors' code.
        kept: torch.Tensor = x_BCHW if self.shortcut is None else self.shortcut(shifted)
        return torch.relu_(out.add_(kept))


def _fixup_resnet(
    config: nets.FixupResNet, in_shape: tuple[int, ...], num_classes: int
) -> nn.Sequential:
    layers: _Layers = OrderedDict(
        stem=nn.Conv2d(in_shape[0], config.planes, 3, padding=1, bias=False),
        stem_bias=Bias(),
        stem_relu=nn.ReLU(inplace=True),
    )
    widths = [config.planes, 2 * config.planes, 4 * config.planes]
    _add_stages(layers, config.planes, widths, (config.depth - 2) // 6, FixupBlock)
    layers["pool"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    layers["classifier_bias"] = Bias()
    layers["classifier"] = nn.Linear(widths[-1], num_classes)
    net = nn.Sequential(layers)
    # The rule for two-layer branches: L^(-1/2) on each first layer, zero on each last one.
    blocks = [layer for layer in net if isinstance(layer, FixupBlock)]
    for block in blocks:
        fan_out = block.conv1.out_channels * 3 * 3
        nn.init.normal_(block.conv1.weight, std=(2 / fan_out / len(blocks)) ** 0.5)
        nn.init.zeros_(block.conv2.weight)
    for parameter in layers["classifier"].parameters():
        nn.init.zeros_(parameter)
    return net


class PreActivationBlock(nn.Module):
    """norm - ReLU - conv - norm - ReLU - conv, plus a shortcut; `skip` is how it changes shape."""

    def __init__(self, num_in: int, num_out: int, stride: int, *, norm: _Norm, skip: _Skip) -> None:
        super().__init__()
        self.norm1 = norm(num_in)
        self.conv1 = nn.Conv2d(num_in, num_out, 3, stride=stride, padding=1, bias=False)
        self.norm2 = norm(num_out)
        self.conv2 = nn.Conv2d(num_out, num_out, 3, padding=1, bias=False)
        self.shortcut: nn.Conv2d | _PaddedShortcut | None = None
        if (stride != 1 or num_in != num_out) and skip == "conv":
            self.shortcut = nn.Conv2d(num_in, num_out, 1, stride=stride, bias=False)
        elif stride != 1 or num_in != num_out:
            self.shortcut = _PaddedShortcut(stride, num_out - num_in)

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        active = _activated(self.norm1, x_BCHW)
        out: torch.Tensor = self.conv2(_activated(self.norm2, self.conv1(active)))
        if self.shortcut is None:
            return out.add_(x_BCHW)  # nothing else reads what the convolution made
        padded = isinstance(self.shortcut, _PaddedShortcut)
        kept: torch.Tensor = self.shortcut(x_BCHW if padded else active)
        return out.add_(kept)


def _activated(norm: nn.Module, x_BCHW: torch.Tensor) -> torch.Tensor:
    """ReLU of what a norm makes, in place: nothing else reads it."""
    normed: torch.Tensor = norm(x_BCHW)
    return torch.relu(normed) if normed is x_BCHW else torch.relu_(normed)


def _wide_resnet(
    config: nets.WideResNet, in_shape: tuple[int, ...], num_classes: int
) -> nn.Sequential:
    widths = [max(1, round(16 * config.width * 2**stage)) for stage in range(3)]
    block = partial(PreActivationBlock, norm=nn.BatchNorm2d, skip=config.skip)
    layers: _Layers = OrderedDict(stem=nn.Conv2d(in_shape[0], 16, 3, padding=1, bias=False))
    _add_stages(layers, 16, widths, (config.depth - 4) // 6, block)
    return _ended(layers, nn.BatchNorm2d, widths[-1], num_classes)


def _resnet50_gn(
    config: nets.ResNet50Gn, in_shape: tuple[int, ...], num_classes: int
) -> nn.Sequential:
    """The ResNet-50 of Mlodozeniec et al. (2023): 3 * 8 * 2 + 2 layers, no bottlenecks."""
    # GroupNorm keeps examples, and so subnetworks, apart; such skips have no weights to partition.
    norm = partial(nn.GroupNorm, config.groups)
    block = partial(PreActivationBlock, norm=norm, skip="identity")
    layers: _Layers = OrderedDict(stem=nn.Conv2d(in_shape[0], 16, 3, padding=1, bias=False))
    _add_stages(layers, 16, (16, 32, 64), config.num_per_stage, block)
    return _ended(layers, norm, 64, num_classes)


def _ended(layers: _Layers, norm: _Norm, channels: int, num_classes: int) -> nn.Sequential:
    layers["norm"] = norm(channels)
    layers["relu"] = nn.ReLU(inplace=True)
    layers["pool"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    layers["classifier"] = nn.Linear(channels, num_classes)
    return _kaiming_normal(nn.Sequential(layers), "fan_in")


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
        out = torch.relu(self.norm1(self.conv1(x_BCHW)))
        return torch.relu(self.norm2(self.conv2(out)) + self.shortcut(x_BCHW))


def _resnet18(config: nets.ResNet18, in_shape: tuple[int, ...], num_classes: int) -> nn.Sequential:
    layers: _Layers = OrderedDict(
        stem=nn.Conv2d(in_shape[0], config.width, 3, padding=1, bias=False),
        stem_norm=nn.BatchNorm2d(config.width),
        stem_relu=nn.ReLU(),
    )
    if config.stem_pool:
        layers["stem_pool"] = nn.MaxPool2d(3, stride=2, padding=1)
    widths = [config.width * 2**stage for stage in range(4)]
    _add_stages(layers, config.width, widths, 2, _BasicBlock)
    layers["pool"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    net = _kaiming_normal(nn.Sequential(layers), "fan_out")
    # Added last: the classifier keeps torch's initialisation, as in the original.
    net.add_module("classifier", nn.Linear(widths[-1], num_classes))
    return net


def _conv(num_in: int, num_out: int, norm: _Norm) -> nn.Sequential:
    conv = nn.Conv2d(num_in, num_out, 3, padding=1, bias=False)
    return nn.Sequential(OrderedDict(conv=conv, norm=norm(num_out), relu=nn.ReLU()))


class _ResidualPair(nn.Module):
    """x plus two convolutions of it, with a dropout slot between them."""

    def __init__(self, channels: int, norm: _Norm) -> None:
        super().__init__()
        self.conv1 = _conv(channels, channels, norm)
        self.drop = nn.Dropout(0.0)
        self.conv2 = _conv(channels, channels, norm)

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.conv2(self.drop(self.conv1(x_BCHW)))
        return x_BCHW + out


class _Multiply(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor

    def extra_repr(self) -> str:
        return f"factor={self.factor}"


def _resnet9(config: nets.ResNet9, in_shape: tuple[int, ...], num_classes: int) -> nn.Sequential:
    """Build the net; weights start at torch's own initialisation, as in the original."""
    width, norm = config.width, partial(nn.GroupNorm, config.groups)
    return nn.Sequential(
        OrderedDict(
            stem=_conv(in_shape[0], width, norm),
            stage1=_conv(width, 2 * width, norm),
            pool1=nn.MaxPool2d(2),
            residual1=_ResidualPair(2 * width, norm),
            stage2=_conv(2 * width, 4 * width, norm),
            pool2=nn.MaxPool2d(2),
            stage3=_conv(4 * width, 8 * width, norm),
            pool3=nn.MaxPool2d(2),
            residual3=_ResidualPair(8 * width, norm),
            # Equal to the original's 4x4 pooling at 32x32 inputs, and fit for other sizes.
            pool=nn.AdaptiveMaxPool2d(1),
            flatten=nn.Flatten(),
            classifier=nn.Linear(8 * width, num_classes, bias=False),
            multiply=_Multiply(0.125),
        )
    )


_STAGES = (
    # expansion, channels, blocks, stride of the first block
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _conv6(num_in: int, num_out: int, size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(num_in, num_out, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(OrderedDict(conv=conv, norm=nn.BatchNorm2d(num_out), relu=nn.ReLU6()))


class _InvertedResidual(nn.Module):
    """1x1 expansion, 3x3 depthwise, 1x1 projection; added to x where the shape stays."""

    def __init__(self, num_in: int, num_out: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = num_in * expansion
        branch: _Layers = OrderedDict()
        if expansion != 1:
            branch["expand"] = _conv6(num_in, hidden, 1)
        branch["depthwise"] = _conv6(hidden, hidden, 3, stride, hidden)
        branch["project"] = nn.Conv2d(hidden, num_out, 1, bias=False)
        branch["norm"] = nn.BatchNorm2d(num_out)
        self.branch = nn.Sequential(branch)
        self.is_residual = stride == 1 and num_in == num_out

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.branch(x_BCHW)
        return x_BCHW + out if self.is_residual else out


def _mobilenet_v2(
    config: nets.MobileNetV2, in_shape: tuple[int, ...], num_classes: int
) -> nn.Sequential:
    channels = _to_eighths(32 * config.width)
    layers: _Layers = OrderedDict(stem=_conv6(in_shape[0], channels, 3))
    for stage, (expansion, base, num_blocks, first_stride) in enumerate(_STAGES, start=1):
        num_out = _to_eighths(base * config.width)
        for i in range(1, num_blocks + 1):
            stride = first_stride if i == 1 else 1
            block = _InvertedResidual(channels, num_out, stride, expansion)
            layers[f"stage{stage}_block{i}"], channels = block, num_out
    num_features = _to_eighths(1280 * max(1.0, config.width))
    layers["head"] = _conv6(channels, num_features, 1)
    layers["pool"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    layers["drop"] = nn.Dropout(0.0)
    layers["classifier"] = classifier = nn.Linear(num_features, num_classes)
    net = _kaiming_normal(nn.Sequential(layers), "fan_out")
    nn.init.normal_(classifier.weight, std=0.01)
    return net


def _to_eighths(channels: float) -> int:
    """The nearest multiple of eight, at least eight, and at most a tenth below `channels`."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest


def _imagenet(config: nets.Imagenet, in_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    if in_shape[0] != 3:
        raise ConfigError(
            f"`{config.name}` takes images with 3 channels, but got {in_shape[0]}. Use `resnet18` "
            "or `wide_resnet`, which take any number."
        )
    name = config.name.removeprefix("imagenet_")
    net: nn.Module = _torchvision.load().models.get_model(name, num_classes=num_classes)
    for layer in net.modules():
        if isinstance(layer, nn.ReLU):
            layer.inplace = False  # activations may still be read by whoever hooks a layer
    return net
