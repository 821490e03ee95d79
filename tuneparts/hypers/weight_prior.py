"""A Gaussian prior of every parameter tensor: one strength of weight decay for each."""

from collections.abc import Sequence
from typing import Annotated

import torch
from torch import Tensor

from tuneparts.hypers.constrained import LOG
from tuneparts.hypers.hyper import Call, Hyper, Number


class WeightPrior(Hyper):
    """Adds decay / 2 times the squared norm of each parameter tensor to the training loss.

    A decay is the precision of the prior divided by the number of examples. The method `laplace`
    learns one for each tensor, in the order of the net's parameters, and arms that follow it train
    under them.
    """

    decay: Annotated[
        float | tuple[float, ...],
        Number(LOG, "prior's precision of a tensor over N", identity=0.0, each="tensor"),
    ] = 0.0

    def on_weights(self, weights: Sequence[Tensor], now: Call) -> Tensor:
        """The penalty."""
        squares_T = torch.stack([weight.square().sum() for weight in weights])
        return (now["decay"] * squares_T).sum() / 2
