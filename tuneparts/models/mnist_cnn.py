"""The MNIST CNN of Mlodozeniec et al. (2023), Table 9; the same as in Schwoebel et al. (2021).

The federated experiments put dropout between its layers; the slots are always there, at rate 0.
"""

from collections import OrderedDict
from typing import Literal

from pydantic import PositiveInt
from torch import nn

from tuneparts.models import kaiming
from tuneparts.models.net import NetConfig, image_shape


class MnistCnn(NetConfig):
    """Two 5x5 convolutions with pooling, then three linear layers."""

    name: Literal["mnist_cnn"] = "mnist_cnn"
    channels: tuple[PositiveInt, PositiveInt] = (20, 50)
    """Output channels of the convolutions."""
    hidden: tuple[PositiveInt, PositiveInt] = (500, 50)
    """Units of the hidden linear layers."""

    def build(self, in_shape: tuple[int, ...], num_classes: int) -> nn.Sequential:
        num_in, height, width = image_shape(self, in_shape, least=4)
        (channels1, channels2), (hidden1, hidden2) = self.channels, self.hidden
        net = nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(num_in, channels1, kernel_size=5, padding=2),
                pool1=nn.MaxPool2d(2),  # before the ReLU: the same values, a quarter of the work
                relu1=nn.ReLU(),
                drop1=nn.Dropout(0.0),
                conv2=nn.Conv2d(channels1, channels2, kernel_size=5, padding=2),
                pool2=nn.MaxPool2d(2),
                relu2=nn.ReLU(),
                drop2=nn.Dropout(0.0),
                flatten=nn.Flatten(),
                linear1=nn.Linear(channels2 * (height // 4) * (width // 4), hidden1),
                relu3=nn.ReLU(),
                drop3=nn.Dropout(0.0),
                linear2=nn.Linear(hidden1, hidden2),
                relu4=nn.ReLU(),
                drop4=nn.Dropout(0.0),
                classifier=nn.Linear(hidden2, num_classes),
            )
        )
        kaiming.uniform(net)
        return net
