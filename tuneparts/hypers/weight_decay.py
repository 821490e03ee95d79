"""Weight decay as a hyper: the strength of an L2 penalty that can be learnt."""

from collections.abc import Sequence
from typing import Annotated

import torch
from torch import Tensor

from tuneparts.hypers.constrained import LOG
from tuneparts.hypers.hyper import Call, Hyper, Number


class WeightDecay(Hyper):
    """Adds strength / 2 times the squared norm of all weights to the training loss.

    The same as `optimiser.weight_decay`, but learnable: through a weight step, since a gradient at
    fixed weights cannot reach it.
    """

    strength: Annotated[float, Number(LOG, "weight decay", identity=0.0)] = 1e-4

    def on_weights(self, weights: Sequence[Tensor], now: Call) -> Tensor:
        """The penalty."""
        squares = torch.stack([weight.square().sum() for weight in weights])
        return now["strength"] / 2 * squares.sum()
