"""Multi-layer perceptron; by default the input-selection net of Mlodozeniec et al. (2023)."""

import math
from collections import OrderedDict
from itertools import pairwise
from typing import Literal

from pydantic import PositiveInt
from torch import nn

from tuneparts.models import kaiming
from tuneparts.models.net import NetConfig

_ACTIVATIONS: dict[str, type[nn.ReLU] | type[nn.GELU]] = {"relu": nn.ReLU, "gelu": nn.GELU}


class Mlp(NetConfig):
    """Linear layers with an activation and a dropout slot after each but the last."""

    name: Literal["mlp"] = "mlp"
    widths: tuple[PositiveInt, ...] = (256, 256)
    """Units of the hidden layers; none makes a linear classifier."""
    activation: Literal["relu", "gelu"] = "gelu"
    """After each layer but the last."""

    def build(self, in_shape: tuple[int, ...], num_classes: int) -> nn.Sequential:
        layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
        sizes = (math.prod(in_shape), *self.widths)
        for i, (num_in, num_out) in enumerate(pairwise(sizes), start=1):
            layers[f"linear{i}"] = nn.Linear(num_in, num_out)
            layers[f"act{i}"] = _ACTIVATIONS[self.activation]()
            layers[f"drop{i}"] = nn.Dropout(0.0)
        layers["classifier"] = nn.Linear(sizes[-1], num_classes)
        net = nn.Sequential(layers)
        kaiming.uniform(net)
        return net
