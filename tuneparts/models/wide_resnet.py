"""Wide ResNet N-D with pre-activation blocks (Zagoruyko & Komodakis 2016), for 32x32 images.

Three stages of (N - 4) / 6 blocks with 16D, 32D and 64D channels. The block is open to other norms
and to shortcuts without weights, which Mlodozeniec et al. (2023) use.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Literal

import torch
from pydantic import PositiveFloat, PositiveInt, field_validator
from torch import nn

from tuneparts.models import kaiming
from tuneparts.models.layers import PaddedShortcut
from tuneparts.models.net import NetConfig, image_shape

Norm = Callable[[int], nn.Module]
"""Makes the normalisation layer of a number of channels."""
Skip = Literal["conv", "identity"]


class PreActivationBlock(nn.Module):
    """norm - ReLU - conv - norm - ReLU - conv, plus a shortcut.

    Where the shape changes, a "conv" skip is a 1x1 convolution of the activated input, and an
    "identity" skip subsamples the raw input and pads it with zero channels.
    """

    def __init__(self, num_in: int, num_out: int, stride: int, *, norm: Norm, skip: Skip) -> None:
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


class WideResNet(NetConfig):
    """Wide ResNet with BatchNorm; WRN-16-1 by default."""

    name: Literal["wide_resnet"] = "wide_resnet"
    depth: int = 16
    """N: layers with weights, 6n + 4 for n blocks a stage."""
    width: PositiveInt | PositiveFloat = 1
    """D: multiple of 16, 32 and 64 channels, rounded where D is not whole."""
    skip: Skip = "conv"
    """Shortcut where the shape changes: 1x1 convolution, or identity padded with zeros."""

    @field_validator("depth")
    @classmethod
    def _check_depth(cls, depth: int) -> int:
        if depth < 10 or depth % 6 != 4:
            raise ValueError(
                f"a Wide ResNet has depth 6n + 4 with n >= 1, but got {depth}. "
                "Use 10, 16, 22, 28, 34 or 40."
            )
        return depth

    def build(self, in_shape: tuple[int, ...], num_classes: int) -> nn.Sequential:
        num_in, _, _ = image_shape(self, in_shape, least=1)
        return pre_activation_net(
            num_in,
            num_classes,
            num_per_stage=(self.depth - 4) // 6,
            width=self.width,
            norm=nn.BatchNorm2d,
            skip=self.skip,
        )


def pre_activation_net(
    num_in: int, num_classes: int, *, num_per_stage: int, width: float, norm: Norm, skip: Skip
) -> nn.Sequential:
    """An initialised net of three stages of pre-activation blocks.

    Args:
        num_in: input channels.
        num_classes: logits per example.
        num_per_stage: blocks in each stage.
        width: multiple of 16, 32 and 64 channels.
        norm: makes a normalisation layer.
        skip: kind of shortcut where the shape changes.
    """
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
    net = nn.Sequential(layers)
    kaiming.normal(net, "fan_in")
    return net
