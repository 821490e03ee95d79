"""MobileNetV2 (Sandler et al. 2018) with two strides taken out, for 32x32 images.

The stem and the second stage keep the resolution, so that 32x32 images end as 4x4 and not as 1x1;
weights and their counts are those of the original.
"""

from collections import OrderedDict

import torch
from torch import nn

from tuneparts.models import MobileNetV2
from tuneparts.models.layers import kaiming_normal

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


class _InvertedResidual(nn.Module):
    """1x1 expansion, 3x3 depthwise, 1x1 projection; added to x where the shape stays."""

    def __init__(self, num_in: int, num_out: int, *, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = num_in * expansion
        branch: OrderedDict[str, nn.Module] = OrderedDict()
        if expansion != 1:
            branch["expand"] = _conv(num_in, hidden, kernel_size=1)
        branch["depthwise"] = _conv(hidden, hidden, kernel_size=3, stride=stride, groups=hidden)
        branch["project"] = nn.Conv2d(hidden, num_out, 1, bias=False)
        branch["norm"] = nn.BatchNorm2d(num_out)
        self.branch = nn.Sequential(branch)
        self.is_residual = stride == 1 and num_in == num_out

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.branch(x_BCHW)
        return x_BCHW + out if self.is_residual else out


def _mobilenet_v2(
    config: MobileNetV2, in_shape: tuple[int, ...], num_classes: int
) -> nn.Sequential:
    channels = _to_eighths(32 * config.width)
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        stem=_conv(in_shape[0], channels, kernel_size=3)
    )
    for stage, (expansion, base, num_blocks, first_stride) in enumerate(_STAGES, start=1):
        num_out = _to_eighths(base * config.width)
        for i in range(1, num_blocks + 1):
            layers[f"stage{stage}_block{i}"] = _InvertedResidual(
                channels, num_out, stride=first_stride if i == 1 else 1, expansion=expansion
            )
            channels = num_out
    num_features = _to_eighths(1280 * max(1.0, config.width))
    layers["head"] = _conv(channels, num_features, kernel_size=1)
    layers["pool"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    layers["drop"] = nn.Dropout(0.0)
    layers["classifier"] = classifier = nn.Linear(num_features, num_classes)
    net = kaiming_normal(nn.Sequential(layers), "fan_out")
    nn.init.normal_(classifier.weight, std=0.01)
    return net


def _conv(
    num_in: int, num_out: int, *, kernel_size: int, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    padding = kernel_size // 2
    conv = nn.Conv2d(num_in, num_out, kernel_size, stride, padding, groups=groups, bias=False)
    return nn.Sequential(OrderedDict(conv=conv, norm=nn.BatchNorm2d(num_out), relu=nn.ReLU6()))


def _to_eighths(channels: float) -> int:
    """The nearest multiple of eight, at least eight, and at most a tenth below `channels`."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest
