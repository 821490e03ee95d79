"""What a net is to predict: the loss that it is trained by and the scores that it is judged by.

Legend: B or N examples, K outputs of the net, M members, P scores that differ.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field

from tuneparts.core import import_path
from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.core.registry import Named, Registry
from tuneparts.core.schema import Direction, Metric

if TYPE_CHECKING:  # torch takes seconds to import, and a listing of data sets does not need it
    from torch import Tensor

Reduction: TypeAlias = Literal["mean", "sum", "none"]
"""Mean or sum over examples, or one loss for each."""
_NUM_BINS = 15  # of the calibration error


def _named(value: Any) -> Any:
    return import_path.of(value) if callable(value) else value


ImportPath: TypeAlias = Annotated[str, BeforeValidator(_named)]
"""The type of a config field: takes a function, or its import path."""


def _checked(values: npt.NDArray[Any], what: str, *, least_axes: int = 1) -> npt.NDArray[Any]:
    """Whole numbers as int64, real ones as float32; refuses what are no finite numbers."""
    if values.ndim < least_axes or values.dtype.kind not in "biuf":
        raise ConfigError(
            f"{what} are numbers, one or more for each example, but got {what} {values.shape} of "
            f"type {values.dtype}."
        )
    if values.dtype.kind != "f":
        return values.astype(np.int64, copy=False)
    real = values.astype(np.float32, copy=False)
    wrong = ~np.isfinite(real)
    if wrong.any():
        example, *place = np.argwhere(wrong)[0].tolist()
        raise ConfigError(
            f"{what} must be finite in float32, but {wrong.sum()} of them are NaN, infinite or too "
            f"large, the first in example {example} at {place}. Drop these or fill the gaps."
        )
    return real


class Target(Named):
    """How outputs (B, K) of a net are compared with the labels of B examples.

    A subclass at the top of a file defines `losses`, `scores` and `metrics`, and is used as
    `Data(..., target=Mine())`. Its settings are fields, as in any config.

    Example:
        >>> class Absolute(Target):
        ...     metrics = (Metric("mae", Direction.DOWN, "", 4, "mean absolute error"),)
        ...
        ...     def losses(self, outputs, y):
        ...         return (outputs[:, 0] - y).abs()
        ...
        ...     def scores(self, outputs, y):
        ...         return {"mae": self.losses(outputs, y).mean().item()}
        >>> [metric.name for metric in Absolute().reported()]
        ['val/mae', 'test/mae']
    """

    registry = Registry(
        "target",
        {
            "classes": "tuneparts.data.target:Classes",
            "binary": "tuneparts.data.target:Binary",
            "values": "tuneparts.data.target:Values",
            "own_loss": "tuneparts.data.target:OwnLoss",
        },
    )
    metrics: ClassVar[tuple[Metric, ...]] = ()
    """What `scores` returns, by name without `val/` or `test/`. Searches select by the first one
    unless they say otherwise, and reports are about it."""
    counts_classes: ClassVar[bool] = False
    """Whether labels are classes: then splits keep their proportions, and words name them."""

    @abstractmethod
    def losses(self, outputs: "Tensor", y: "Tensor") -> "Tensor":
        """The loss of each example (B,): differentiable, and a mean over outputs if there are more.

        Outputs of the net are (B, K); labels (B, ...) are as the data set has them, integers as
        int64 and reals as float32.
        """

    @abstractmethod
    def scores(self, outputs: "Tensor", y: "Tensor") -> dict[str, float]:
        """The metrics of all N examples of a part, by name; one that is not defined is left out."""

    def loss(self, outputs: "Tensor", y: "Tensor", *, reduction: Reduction = "mean") -> "Tensor":
        losses_B = self.losses(outputs, y)
        if reduction == "none":
            return losses_B
        return losses_B.mean() if reduction == "mean" else losses_B.sum()

    def strata(self, labels: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """What splits keep the proportions of: the classes (N,), or nothing at all."""
        return labels if self.counts_classes else np.zeros(len(labels), np.int64)

    def prepared(self, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Labels (N, ...) as batches have them: int64 or float32, finite; refuses any others."""
        return _checked(labels, "labels")

    def count_outputs(self, labels: npt.NDArray[Any]) -> int:
        """K for these labels: as many outputs as an example has numbers, unless overridden."""
        return int(np.prod(labels.shape[1:], dtype=np.int64))

    def combined(self, outputs_MBK: "Tensor") -> "Tensor":
        """One prediction (B, K) from those of several members: the mean, unless overridden."""
        return outputs_MBK.mean(dim=0)

    def reported(self) -> tuple[Metric, ...]:
        """The metrics under the names that learners report."""
        where = {"val": "held-out validation data", "test": "test data"}
        return tuple(
            replace(one, name=f"{split}/{one.name}", meaning=f"{one.meaning}, {where[split]}")
            for split in where
            for one in self.metrics
        )


_LIKELIHOOD = (
    Metric("accuracy", Direction.UP, "", 4, "fraction classified right", 0, 1),
    Metric("nll", Direction.DOWN, "nats", 4, "mean negative log-likelihood", 0),
    Metric("ece", Direction.DOWN, "", 4, "calibration error, 15 bins", 0, 1),
    Metric("brier", Direction.DOWN, "", 4, "Brier score over all classes", 0, 2),
)


class Classes(Target):
    """One of K classes: an output for each, cross-entropy.

    Example:
        >>> import torch
        >>> Classes().loss(torch.zeros(1, 4), torch.tensor([2]))
        tensor(1.3863)
    """

    metrics = _LIKELIHOOD
    counts_classes = True

    def losses(self, outputs: "Tensor", y: "Tensor") -> "Tensor":
        return self.loss(outputs, y, reduction="none")

    def loss(self, outputs: "Tensor", y: "Tensor", *, reduction: Reduction = "mean") -> "Tensor":
        """Cross-entropy with labels (B,) or probabilities (B, K)."""
        from torch.nn import functional as F

        return F.cross_entropy(outputs, y, reduction=reduction)

    def scores(self, outputs: "Tensor", y: "Tensor") -> dict[str, float]:
        """Accuracy, nll, ece (Guo et al. 2017) and Brier score (1950) of logits (N, K)."""
        import torch

        log_probs_NK = outputs.double().log_softmax(dim=1)
        one_hot_NK = torch.nn.functional.one_hot(y, outputs.shape[1])
        probs_NK = log_probs_NK.exp()
        confidence_N, predicted_N = probs_NK.max(dim=1)
        right_N = (predicted_N == y).double()
        bins_N = (confidence_N * _NUM_BINS).ceil().long().clamp(1, _NUM_BINS) - 1
        gaps = torch.zeros(_NUM_BINS, dtype=confidence_N.dtype, device=confidence_N.device)
        gaps = gaps.index_add(0, bins_N, confidence_N - right_N)
        found = {
            "accuracy": right_N.mean(),
            "nll": torch.nn.functional.nll_loss(log_probs_NK, y),
            "ece": gaps.abs().sum() / len(confidence_N),
            "brier": (probs_NK - one_hot_NK).square().sum(dim=1).mean(),
        }
        return {name: float(value) for name, value in found.items()}

    def prepared(self, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if labels.ndim != 1 or labels.dtype.kind not in "biu" or labels.min(initial=0) < 0:
            raise ConfigError(
                "there must be one label, a whole number from 0 on, per input, but got labels "
                f"{labels.shape} of type {labels.dtype} such as {labels.flat[:3]}. Number the "
                "classes from 0 on, or use the target `values` for real numbers."
            )
        return _checked(labels, "labels")

    def count_outputs(self, labels: npt.NDArray[Any]) -> int:
        return 1 + int(labels.max(initial=-1))

    def combined(self, outputs_MBK: "Tensor") -> "Tensor":
        """Log of the mean of the members' probabilities, in double precision."""
        log_probs_MBK = outputs_MBK.double().log_softmax(dim=2)
        return log_probs_MBK.logsumexp(dim=0) - math.log(len(outputs_MBK))


class Binary(Target):
    """Class 1 or class 0: one output, the log-odds of class 1; binary cross-entropy.

    Example:
        >>> import torch
        >>> Binary().loss(torch.zeros(2, 1), torch.tensor([0, 1]))
        tensor(0.6931)
    """

    metrics = (*_LIKELIHOOD, Metric("auc", Direction.UP, "", 4, "area under the ROC curve", 0, 1))
    counts_classes = True

    def losses(self, outputs: "Tensor", y: "Tensor") -> "Tensor":
        from torch.nn import functional as F

        logits_B = outputs.squeeze(1)
        return F.binary_cross_entropy_with_logits(logits_B, y.to(logits_B.dtype), reduction="none")

    def scores(self, outputs: "Tensor", y: "Tensor") -> dict[str, float]:
        """Those of two classes, and the area under the ROC curve unless one class is missing."""
        import torch

        found = Classes().scores(torch.cat([torch.zeros_like(outputs), outputs], dim=1), y)
        num_ones = int(y.sum())
        num_pairs = num_ones * (len(y) - num_ones)
        if num_pairs:
            logits_N = outputs.squeeze(1)
            _, place_N, count_P = torch.unique(logits_N, return_inverse=True, return_counts=True)
            rank_P = count_P.cumsum(0) - (count_P - 1) / 2  # the mean of equal scores, from 1 on
            ranks = float(rank_P.double()[place_N][y == 1].sum())
            found["auc"] = (ranks - num_ones * (num_ones + 1) / 2) / num_pairs
        return found

    def prepared(self, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        found = np.unique(labels)
        if labels.ndim != 1 or not set(found.tolist()) <= {0, 1}:
            raise ConfigError(
                f"labels of the target `binary` are 0 or 1, one per input, but got {labels.shape} "
                f"such as {found[:3].tolist()}. Code them so, or use the target `classes`."
            )
        return labels.astype(np.int64)

    def combined(self, outputs_MBK: "Tensor") -> "Tensor":
        """Log-odds of the mean of the members' probabilities, in double precision."""
        from torch.nn import functional as F

        outputs = outputs_MBK.double()
        # log p - log (1 - p) of the mean p, from sums of logarithms that do not underflow.
        return F.logsigmoid(outputs).logsumexp(dim=0) - F.logsigmoid(-outputs).logsumexp(dim=0)


class Values(Target):
    """Real numbers: an output for each, mean squared error in the units of the labels.

    Labels are not scaled: bring them to a size around one in the function that makes the data, or
    lower the learning rate.

    Example:
        >>> import torch
        >>> Values().loss(torch.zeros(2, 1), torch.tensor([[1.0], [3.0]]))
        tensor(5.)
    """

    metrics = (
        Metric("mse", Direction.DOWN, "", 4, "mean squared error", 0),
        Metric("rmse", Direction.DOWN, "", 4, "root of the mean squared error", 0),
        Metric("r2", Direction.UP, "", 4, "share of the labels' variance explained"),
    )

    def prepared(self, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Real numbers (N, K); those of one output may come as (N,)."""
        found = _checked(labels, "labels").astype(np.float32, copy=False)
        if found.ndim > 2:
            raise ConfigError(f"labels are (N,) or (N, K), but got {found.shape}. Flatten each.")
        return found.reshape(len(found), -1)

    def losses(self, outputs: "Tensor", y: "Tensor") -> "Tensor":
        return (outputs - y).square().mean(dim=1)

    def scores(self, outputs: "Tensor", y: "Tensor") -> dict[str, float]:
        """Means over outputs; r2 is left out where one of them does not vary."""
        values_NK, y_NK = outputs.double(), y.double()
        mse_K = (values_NK - y_NK).square().mean(dim=0)
        found = {"mse": mse_K.mean(), "rmse": mse_K.mean().sqrt()}
        variance_K = y_NK.var(dim=0, correction=0)
        if bool((variance_K > 0).all()):
            found["r2"] = (1 - mse_K / variance_K).mean()
        return {name: float(value) for name, value in found.items()}


class OwnLoss(Target):
    """Your own function `loss(outputs, y)`, which gives the loss (B,) of each example.

    `Data(..., target=function)` is short for it. A subclass of `Target` has metrics of its
    own besides.

    Example:
        >>> OwnLoss(function="my_search:huber", num_outputs=3).model_dump()
        {'kind': 'own_loss', 'function': 'my_search:huber', 'num_outputs': 3}
    """

    function: ImportPath
    """Import path; the function itself is taken too."""
    num_outputs: int | None = Field(default=None, ge=1)
    """Outputs of the net; as many as an example has labels if None."""
    metrics = (Metric("loss", Direction.DOWN, "", 4, "mean loss by your own function"),)

    def __init__(self, function: Callable[..., Any] | None = None, /, **values: Any) -> None:
        super().__init__(**({} if function is None else {"function": function}), **values)

    def losses(self, outputs: "Tensor", y: "Tensor") -> "Tensor":
        losses_B: Tensor = import_path.find(self.function)(outputs, y)
        return losses_B

    def scores(self, outputs: "Tensor", y: "Tensor") -> dict[str, float]:
        return {"loss": float(self.losses(outputs.double(), y).mean())}

    def count_outputs(self, labels: npt.NDArray[Any]) -> int:
        return self.num_outputs or super().count_outputs(labels)


def _from_anything(value: Any) -> Any:
    """A target from its name, its JSON or a function; anything else is returned as it is."""
    if isinstance(value, str):
        return Target.made_from({"kind": value})
    if isinstance(value, type) and issubclass(value, Target):
        return value()
    if callable(value):
        return parse(OwnLoss, {"function": value})
    return Target.made_from(value)
