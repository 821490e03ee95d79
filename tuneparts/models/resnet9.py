"""ResNet-9 of the DAWNBench entries (Page 2018) with GroupNorm, as in Mlodozeniec et al. (2023).

The federated experiments put dropout in the middle of each residual block; the slots are always
there, at rate 0. Weights start at torch's own initialisation, as in the original.
"""

from collections import OrderedDict
from typing import Literal, Self

import torch
from pydantic import PositiveInt, model_validator
from torch import nn

from tuneparts.models.net import NetConfig, image_shape


class ResidualPair(nn.Module):
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


class Multiply(nn.Module):
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


class ResNet9(NetConfig):
    """Eight convolutions, two residual blocks, and a linear layer without bias."""

    name: Literal["resnet9"] = "resnet9"
    width: PositiveInt = 64
    """Channels of the stem; the stages have 2, 4 and 8 times as many."""
    groups: PositiveInt = 2
    """Groups of each GroupNorm."""

    @model_validator(mode="after")
    def _check_groups(self) -> Self:
        if self.width % self.groups:
            raise ValueError(
                f"`groups` must divide `width`, but got {self.groups} groups for {self.width} "
                f"channels. Use a divisor of {self.width} as `groups`."
            )
        return self

    def build(self, in_shape: tuple[int, ...], num_classes: int) -> nn.Sequential:
        num_in, _, _ = image_shape(self, in_shape, least=8)
        width, groups = self.width, self.groups
        return nn.Sequential(
            OrderedDict(
                stem=_conv(num_in, width, groups),
                stage1=_conv(width, 2 * width, groups),
                pool1=nn.MaxPool2d(2),
                residual1=ResidualPair(2 * width, groups),
                stage2=_conv(2 * width, 4 * width, groups),
                pool2=nn.MaxPool2d(2),
                stage3=_conv(4 * width, 8 * width, groups),
                pool3=nn.MaxPool2d(2),
                residual3=ResidualPair(8 * width, groups),
                # Equal to the original's 4x4 pooling at 32x32 inputs, and fit for other sizes.
                pool=nn.AdaptiveMaxPool2d(1),
                flatten=nn.Flatten(),
                classifier=nn.Linear(8 * width, num_classes, bias=False),
                multiply=Multiply(0.125),
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
