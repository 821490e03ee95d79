"""Small nets: a multi-layer perceptron, and CNNs for digits.

`mlp` is by default the input-selection net of Mlodozeniec et al. (2023), and `mnist_cnn` their
MNIST CNN (Table 9; also in Schwoebel et al. 2021). The federated experiments put dropout between
its layers; the slots are always there, at rate 0. `digits_cnn` has 13,706 weights for 8x8 images.
"""

import math
from collections import OrderedDict
from itertools import pairwise

from torch import nn

from tuneparts.nets import DigitsCnn, Mlp, MnistCnn
from tuneparts.nets.layers import _kaiming_uniform


def _mlp(config: Mlp, in_shape: tuple[int, ...], num_classes: int) -> nn.Sequential:
    activation = {"relu": nn.ReLU, "gelu": nn.GELU}[config.activation]
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    sizes = (math.prod(in_shape), *config.widths)
    for i, (num_in, num_out) in enumerate(pairwise(sizes), start=1):
        layers[f"linear{i}"] = nn.Linear(num_in, num_out)
        layers[f"act{i}"] = activation()
        layers[f"drop{i}"] = nn.Dropout(0.0)
    layers["classifier"] = nn.Linear(sizes[-1], num_classes)
    return _kaiming_uniform(nn.Sequential(layers))


def _cnn(
    config: DigitsCnn | MnistCnn, in_shape: tuple[int, ...], num_classes: int
) -> nn.Sequential:
    hidden = config.hidden if isinstance(config, MnistCnn) else (config.hidden,)
    kernel_size = 5 if isinstance(config, MnistCnn) else 3
    num_in, height, width = in_shape
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for i, (before, after) in enumerate(pairwise((num_in, *config.channels)), start=1):
        layers[f"conv{i}"] = nn.Conv2d(before, after, kernel_size, padding=kernel_size // 2)
        layers[f"pool{i}"] = nn.MaxPool2d(2)  # before the ReLU: the same values, less work
        layers[f"relu{i}"] = nn.ReLU()
        layers[f"drop{i}"] = nn.Dropout(0.0)
    layers["flatten"] = nn.Flatten()
    sizes = (config.channels[1] * (height // 4) * (width // 4), *hidden)
    for i, (before, after) in enumerate(pairwise(sizes), start=1):
        layers[f"linear{i}"] = nn.Linear(before, after)
        layers[f"relu{i + 2}"] = nn.ReLU()
        layers[f"drop{i + 2}"] = nn.Dropout(0.0)
    layers["classifier"] = nn.Linear(sizes[-1], num_classes)
    return _kaiming_uniform(nn.Sequential(layers))
