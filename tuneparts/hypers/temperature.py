"""Softmax temperature, learnt through its logarithm or fixed."""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from tuneparts.hypers.constrained import LOG
from tuneparts.hypers.hyper import Call, Hyper, Number


class Temperature(Hyper):
    """Divides logits by a positive temperature: above 1 predictions are less certain."""

    value: Annotated[float, Field(gt=0), Number(LOG, identity=1.0, metric="temperature")] = 1.0
    """By which logits are divided."""

    def on_outputs(self, outputs_BK: Tensor, now: Call) -> Tensor:
        """Tempered logits (B, K)."""
        return outputs_BK / now["value"]
