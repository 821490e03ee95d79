"""Label smoothing: a share of every label is given to all classes alike (Szegedy et al. 2016)."""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from tuneparts.hypers.constrained import UNIT
from tuneparts.hypers.hyper import Call, Hyper, Number


class LabelSmoothing(Hyper):
    """Mixes cross-entropy with that of the uniform distribution over classes.

    It changes the training loss only, and not what is predicted or scored: it can be searched,
    held, or learnt through a weight step, but not by a gradient at fixed weights.

    Example:
        >>> from tuneparts.hypers import HypersConfig
        >>> HypersConfig(smoothing=LabelSmoothing(rate=0.2)).model_dump()["smoothing"]
        {'kind': 'label_smoothing', 'rate': 0.2}
    """

    needs_classes = True

    rate: Annotated[
        float,
        Field(lt=1),
        Number(UNIT, "share of a label that all classes have alike", identity=0.0),
    ] = 0.1

    def on_loss(
        self,
        losses_B: Tensor,
        outputs_BK: Tensor,
        targets_B: Tensor,  # noqa: ARG002
        now: Call,
    ) -> Tensor:
        """The cross-entropy of each example with its smoothed label."""
        uniform_B = -outputs_BK.log_softmax(dim=1).mean(dim=1)
        return losses_B + now["rate"] * (uniform_B - losses_B)
