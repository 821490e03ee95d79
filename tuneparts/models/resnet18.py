"""ResNet-18 (He et al. 2016) with a 3x3 stem, for 32x32 images."""

from collections import OrderedDict
from typing import Literal

import torch
from pydantic import PositiveInt
from torch import nn

from tuneparts.models import kaiming
from tuneparts.models.net import NetConfig, image_shape


class BasicBlock(nn.Module):
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


class ResNet18(NetConfig):
    """Four stages of two basic blocks."""

    name: Literal["resnet18"] = "resnet18"
    width: PositiveInt = 64
    """Channels of the first stage; each further stage has twice as many."""
    stem_pool: bool = False
    """Halve the image once more, by 3x3 max pooling after the stem: a quarter of the cost."""

    def build(self, in_shape: tuple[int, ...], num_classes: int) -> nn.Sequential:
        num_in, _, _ = image_shape(self, in_shape, least=1)
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            stem=nn.Conv2d(num_in, self.width, 3, padding=1, bias=False),
            stem_norm=nn.BatchNorm2d(self.width),
            stem_relu=nn.ReLU(),
        )
        if self.stem_pool:
            layers["stem_pool"] = nn.MaxPool2d(3, stride=2, padding=1)
        channels = self.width
        for stage in (1, 2, 3, 4):
            num_out = self.width * 2 ** (stage - 1)
            for i in (1, 2):
                stride = 2 if stage > 1 and i == 1 else 1
                layers[f"stage{stage}_block{i}"] = BasicBlock(channels, num_out, stride)
                channels = num_out
        layers["pool"] = nn.AdaptiveAvgPool2d(1)
        layers["flatten"] = nn.Flatten()
        net = nn.Sequential(layers)
        kaiming.normal(net, "fan_out")
        # Added last: the classifier keeps torch's initialisation, as in the original.
        net.add_module("classifier", nn.Linear(channels, num_classes))
        return net
