"""Nets whose weights are lent for a forward pass: composed or cut from somewhere else.

The net keeps its own code, norms, biases and head; the layers named give up their weight parameter
and hold, for the duration of a `with` block, a tensor that may be part of a graph.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from torch import Tensor, nn


def give_up_weights(net: nn.Module, names: Sequence[str]) -> None:
    """Remove the weight parameters of these layers; they then work inside `lent` only."""
    for name in names:
        layer = net.get_submodule(name)
        del layer._parameters["weight"]


@contextmanager
def lent(net: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Let these layers hold these weights inside the block.

    Args:
        net: one that gave up the weights of the layers.
        weights: by name of the layer.
    """
    layers = {name: net.get_submodule(name) for name in weights}
    try:
        for name, layer in layers.items():
            # Past `nn.Module.__setattr__`: the weight is neither a parameter nor a buffer here.
            layer.__dict__["weight"] = weights[name]
        yield
    finally:
        for layer in layers.values():
            layer.__dict__.pop("weight", None)
