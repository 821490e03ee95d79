"""Initialisations that keep the variance of activations through ReLUs (He et al. 2015).

Both touch linear and convolution layers only and set their biases to zero.
"""

from typing import Literal

from torch import nn


def uniform(net: nn.Module) -> None:
    """Draw weights from U(-b, b) with b = sqrt(6 / fan_in), in place."""
    for layer in net.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def normal(net: nn.Module, fan: Literal["fan_in", "fan_out"]) -> None:
    """Draw weights from N(0, 2 / fan), in place."""
    for layer in net.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode=fan, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
