"""A small, fast CNN for 8x8 digits: 13,706 weights at its defaults."""

from collections import OrderedDict
from typing import Literal

from pydantic import PositiveInt
from torch import nn

from tuneparts.models import kaiming
from tuneparts.models.net import NetConfig, image_shape


class DigitsCnn(NetConfig):
    """Two 3x3 convolutions with pooling, then two linear layers."""

    name: Literal["digits_cnn"] = "digits_cnn"
    channels: tuple[PositiveInt, PositiveInt] = (16, 32)
    """Output channels of the convolutions."""
    hidden: PositiveInt = 64
    """Units of the hidden linear layer."""

    def build(self, in_shape: tuple[int, ...], num_classes: int) -> nn.Sequential:
        num_in, height, width = image_shape(self, in_shape, least=4)
        channels1, channels2 = self.channels
        net = nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(num_in, channels1, kernel_size=3, padding=1),
                pool1=nn.MaxPool2d(2),  # before the ReLU: the same values, a quarter of the work
                relu1=nn.ReLU(),
                drop1=nn.Dropout(0.0),
                conv2=nn.Conv2d(channels1, channels2, kernel_size=3, padding=1),
                pool2=nn.MaxPool2d(2),
                relu2=nn.ReLU(),
                drop2=nn.Dropout(0.0),
                flatten=nn.Flatten(),
                linear1=nn.Linear(channels2 * (height // 4) * (width // 4), self.hidden),
                relu3=nn.ReLU(),
                drop3=nn.Dropout(0.0),
                classifier=nn.Linear(self.hidden, num_classes),
            )
        )
        kaiming.uniform(net)
        return net
