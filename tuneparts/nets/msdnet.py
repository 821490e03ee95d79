"""Multi-Scale Dense Network: a classifier every few layers, all of coarse features (MSDNet).

Huang et al. (2018), with the layout of their released code for CIFAR. A layer has a feature map per
scale, each half as wide and high as the last. A map is made from all earlier maps of its scale and
of the next finer one; the classifiers see the coarsest scale, which has therefore seen the
whole image early. A third of the way down the net the finest scale is dropped, and after two thirds
the next, each time with a layer that halves the channels.

Legend: B images, C channels, H height, W width, K classes, S scales.
"""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from tuneparts.nets import MsdNet
from tuneparts.nets.layers import _kaiming_normal

_REDUCTION = 0.5
"""Share of the channels that stays where a scale is dropped."""


def _msdnet(config: MsdNet, in_shape: tuple[int, ...], num_classes: int) -> "MultiScaleDense":
    return _kaiming_normal(MultiScaleDense(config, in_shape[0], num_classes), "fan_in")


class MultiScaleDense(nn.Module):
    """Blocks of layers over several scales, and a classifier after each."""

    def __init__(self, config: MsdNet, num_in: int, num_classes: int) -> None:
        super().__init__()
        num_scales, num_layers = len(config.growth_factors), sum(config.layers)
        stem, last = [], num_in
        for scale, factor in enumerate(config.growth_factors):
            stem.append(_conv(last, config.channels * factor, 3, stride=1 if scale == 0 else 2))
            last = config.channels * factor
        self.stem = nn.ModuleList(stem)
        blocks, exits = [], []
        channels, placed, finest = config.channels, 0, 0
        for count in config.layers:
            layers: list[nn.Module] = []
            for _ in range(count):
                # The released code drops a scale with each third of the layers, or part of one.
                first = placed // math.ceil(num_layers / num_scales)
                layers.append(_DenseLayer(config, channels, first, drops=first > finest))
                channels += config.growth
                if first > finest:
                    kept = math.floor(_REDUCTION * channels)
                    layers.append(_Transition(config.growth_factors[first:], channels, kept))
                    channels = kept
                placed, finest = placed + 1, first
            blocks.append(nn.ModuleList(layers))
            width = channels * config.growth_factors[-1]
            num = config.exit_channels
            convolutions = _conv(width, num, 3, 2), _conv(num, num, 3, 2)
            # Equal to the original's 2x2 pooling at 32x32 inputs, and fit for other sizes.
            ends = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(num, num_classes)
            exits.append(nn.Sequential(*convolutions, *ends))
        self.blocks = nn.ModuleList(blocks)
        self.classifiers = nn.ModuleList(exits)

    @property
    def num_exits(self) -> int:
        return len(self.classifiers)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Compute the logits (B, K) of the last exit alone."""
        *_, features = self._features(x_BCHW)
        logits_BK: Tensor = self.classifiers[-1](features)
        return logits_BK

    def exits(self, x_BCHW: Tensor) -> Iterator[Tensor]:
        """Compute the logits (B, K) of one exit after another, each when it is asked for."""
        for classifier, features in zip(self.classifiers, self._features(x_BCHW), strict=True):
            yield classifier(features)

    def _features(self, x_BCHW: Tensor) -> Iterator[Tensor]:
        """Compute the coarsest map after each block."""
        maps = []
        for layer in self.stem:
            x_BCHW = layer(x_BCHW)
            maps.append(x_BCHW)
        for block in self.blocks:
            assert isinstance(block, nn.ModuleList)
            for layer in block:
                maps = layer(maps)
            yield maps[-1]


class _DenseLayer(nn.Module):
    """A layer over scales from `first` on; `channels` are those that it reads, without factors."""

    def __init__(self, config: MsdNet, channels: int, first: int, *, drops: bool) -> None:
        super().__init__()
        growth, bottleneck = config.growth_factors, config.bottleneck_factors
        self._drops = drops
        self.down, self.same = nn.ModuleList(), nn.ModuleList()
        for scale in range(first, len(growth)):
            added, reads_finer = config.growth * growth[scale], drops or scale > first
            if reads_finer:
                added //= 2
                finer = scale - 1
                self.down.append(_bottleneck(channels * growth[finer], added, bottleneck[finer], 2))
            self.same.append(_bottleneck(channels * growth[scale], added, bottleneck[scale], 1))

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Maps of all scales that it reads, the finest first, to those that it has."""
        kept = maps[1:] if self._drops else maps
        found = [[x, same(x)] for x, same in zip(kept, self.same, strict=True)]
        coarser = found if self._drops else found[1:]
        for parts, finer, down in zip(coarser, maps[:-1], self.down, strict=True):
            parts.insert(1, down(finer))
        return [torch.cat(parts, dim=1) for parts in found]


class _Transition(nn.ModuleList):
    """A 1x1 convolution of each scale's map, to fewer channels."""

    def __init__(self, factors: Sequence[int], num_in: int, num_out: int) -> None:
        super().__init__(_conv(num_in * f, num_out * f, 1) for f in factors)

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        return [layer(x) for layer, x in zip(self, maps, strict=True)]


def _conv(num_in: int, num_out: int, kernel: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(num_in, num_out, kernel, stride=stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(num_out),
        nn.ReLU(inplace=True),
    )


def _bottleneck(num_in: int, num_out: int, factor: int, stride: int) -> nn.Sequential:
    between = min(num_in, factor * num_out)
    return nn.Sequential(_conv(num_in, between, 1), _conv(between, num_out, 3, stride))
