"""Wide ResNet N-D with pre-activation blocks (Zagoruyko & Komodakis 2016), for 32x32 images.

Three stages of (N - 4) / 6 blocks with 16D, 32D and 64D channels. The block is open to other norms
and to shortcuts without weights, which Mlodozeniec et al. (2023) use.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import nn

from tuneparts.models.config import ResNet50Gn, WideResNet, image_shape
from tuneparts.models.layers import PaddedShortcut, kaiming_normal

_Norm = Callable[[int], nn.Module]
"""Makes the normalisation layer of a number of channels."""
_Skip = Literal["conv", "identity"]


class PreActivationBlock(nn.Module):
    """norm - ReLU - conv - norm - ReLU - conv, plus a shortcut.

    Where the shape changes, a "conv" skip is a 1x1 convolution of the activated input, and an
    "identity" skip subsamples the raw input and pads it with zero channels.
    """

    def __init__(self, num_in: int, num_out: int, stride: int, *, norm: _Norm, skip: _Skip) -> None:
        super().__init__()
        self.norm1 = norm(num_in)
        self.conv1 = nn.Conv2d(num_in, num_out, 3, stride=stride, padding=1, bias=False)
        self.norm2 = norm(num_out)
        self.conv2 = nn.Conv2d(num_out, num_out, 3, padding=1, bias=False)
        self.shortcut: nn.Conv2d | PaddedShortcut | None = None
        if stride != 1 or num_in != num_out:
            self.shortcut = (
                nn.Conv2d(num_in, num_out, 1, stride=stride, bias=False)
                if skip == "conv"
                else PaddedShortcut(stride, num_out - num_in)
            )

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """(B, C, H, W) to (B, C', H', W')."""
        active = _activated(self.norm1, x_BCHW)
        out: torch.Tensor = self.conv2(_activated(self.norm2, self.conv1(active)))
        if self.shortcut is None:
            return out.add_(x_BCHW)  # nothing else reads what the convolution made
        padded = isinstance(self.shortcut, PaddedShortcut)
        kept: torch.Tensor = self.shortcut(x_BCHW if padded else active)
        return out.add_(kept)


def _activated(norm: nn.Module, x_BCHW: torch.Tensor) -> torch.Tensor:
    """ReLU of what a norm makes, in place: nothing else reads it."""
    normed: torch.Tensor = norm(x_BCHW)
    return torch.relu(normed) if normed is x_BCHW else torch.relu_(normed)


def _wide_resnet(config: WideResNet, in_shape: tuple[int, ...], num_classes: int) -> nn.Sequential:
    """Build the net."""
    num_in, _, _ = image_shape(config, in_shape, least=1)
    return _pre_activation_net(
        num_in,
        num_classes,
        num_per_stage=(config.depth - 4) // 6,
        width=config.width,
        norm=nn.BatchNorm2d,
        skip=config.skip,
    )


def _resnet50_gn(config: ResNet50Gn, in_shape: tuple[int, ...], num_classes: int) -> nn.Sequential:
    """Build the TinyImagenet ResNet-50 of Mlodozeniec et al. (2023).

    Not the bottleneck net of the same name: three stages of eight two-convolution blocks at width 1
    make 3 * 8 * 2 + 2 = 50 layers. GroupNorm instead of BatchNorm keeps examples, and so
    subnetworks, apart; identity skips have no weights to partition.
    """
    num_in, _, _ = image_shape(config, in_shape, least=1)
    return _pre_activation_net(
        num_in,
        num_classes,
        num_per_stage=config.num_per_stage,
        width=1,
        norm=partial(nn.GroupNorm, config.groups),
        skip="identity",
    )


def _pre_activation_net(
    num_in: int, num_classes: int, *, num_per_stage: int, width: float, norm: _Norm, skip: _Skip
) -> nn.Sequential:
    """An initialised net of three stages of `num_per_stage` pre-activation blocks."""
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        stem=nn.Conv2d(num_in, 16, 3, padding=1, bias=False)
    )
    channels = 16
    for stage in (1, 2, 3):
        num_out = max(1, round(16 * width * 2 ** (stage - 1)))
        for i in range(1, num_per_stage + 1):
            stride = 2 if stage > 1 and i == 1 else 1
            layers[f"stage{stage}_block{i}"] = PreActivationBlock(
                channels, num_out, stride, norm=norm, skip=skip
            )
            channels = num_out
    layers["norm"] = norm(channels)
    layers["relu"] = nn.ReLU(inplace=True)
    layers["pool"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    layers["classifier"] = nn.Linear(channels, num_classes)
    return kaiming_normal(nn.Sequential(layers), "fan_in")
