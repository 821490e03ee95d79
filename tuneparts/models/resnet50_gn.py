"""The TinyImagenet ResNet-50 of Mlodozeniec et al. (2023): pre-activation, with GroupNorm.

Not the bottleneck net of the same name: three stages of eight two-convolution blocks at width 1
make 3 * 8 * 2 + 2 = 50 layers. GroupNorm instead of BatchNorm keeps examples, and so
subnetworks, apart; identity skips have no weights to partition.
"""

from functools import partial
from typing import Literal

from pydantic import PositiveInt
from torch import nn

from tuneparts.models.net import NetConfig, image_shape
from tuneparts.models.wide_resnet import pre_activation_net


class ResNet50Gn(NetConfig):
    """Pre-activation ResNet with two groups in each norm and identity skips."""

    name: Literal["resnet50_gn"] = "resnet50_gn"
    num_per_stage: PositiveInt = 8
    """Blocks in each of the three stages; n give 6n + 2 layers."""
    groups: Literal[1, 2, 4, 8, 16] = 2
    """Groups of each GroupNorm; divides the 16 channels of the stem."""

    def build(self, in_shape: tuple[int, ...], num_classes: int) -> nn.Sequential:
        num_in, _, _ = image_shape(self, in_shape, least=1)
        return pre_activation_net(
            num_in,
            num_classes,
            num_per_stage=self.num_per_stage,
            width=1,
            norm=partial(nn.GroupNorm, self.groups),
            skip="identity",
        )
