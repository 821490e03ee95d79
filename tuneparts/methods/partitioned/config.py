"""What partitioned training is given, without torch (Mlodozeniec et al. 2023)."""

from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from tuneparts.core import import_path
from tuneparts.core.errors import ConfigError
from tuneparts.core.schema import Direction, Metric
from tuneparts.data.chunks import sizes
from tuneparts.hypers import HyperGradient
from tuneparts.training.config import Finetune, SupervisedMethod
from tuneparts.training.learner import Context, Learner

Scheme = Literal["random", "node"]
Defaults = Literal["zero", "initial"]
DecayScaling = Literal["reciprocal", "sqrt", "off"]
MAX_PARTITIONS = 255
"""A byte counts that far, and 0 stays free for subnetwork 0, which owns nothing."""


def _checked_proportions(proportions: Sequence[float]) -> tuple[float, ...]:
    """Proportions of the weights per partition; refuses too many, and an empty first one."""
    given = tuple(float(p) for p in proportions)
    if not 1 <= len(given) <= MAX_PARTITIONS:
        raise ConfigError(f"{len(given)} proportions: there are 1 to {MAX_PARTITIONS} partitions.")
    sizes(1, given)  # refuses what is negative, infinite or all zero
    if given[0] <= 0:
        raise ConfigError(f"proportions {given}: partition 1 is in all subnetworks, and not empty.")
    return given


def _check_division(proportions: Sequence[float], owned: Sequence[float]) -> None:
    """Refuse proportions of chunks and of partitions that are invalid or not equally many."""
    _checked_proportions(proportions)
    _checked_proportions(owned)
    if len(owned) != len(proportions):
        raise ValueError(
            f"`proportions` has {len(proportions)} entries and `parameter_proportions` "
            f"{len(owned)}: chunks and partitions are equally many."
        )
    for k, (data, weights) in enumerate(zip(proportions, owned, strict=True), start=1):
        if weights > 0 and not data > 0:
            raise ValueError(f"partition {k} has {weights:g} of the weights, chunk {k} no data.")


_LEAN = 0.03
"""Share of the weights of each partition but the first, in the strongest form."""
_LEARNERS = "tuneparts.methods.partitioned.learner"
PUBLISHED: dict[str, Any] = {
    "parameter_proportions": "as_data", "scheme": "random", "mixed": False, "hyper_share": 0.0,
    "finetune": None,
}  # fmt: skip
"""Where the published form differs from the strongest one."""


class Partitioned(SupervisedMethod):
    """Weights and hyperparameters in one run, without validation data.

    As it stands it is our strongest form; `published` is that of the paper. One chunk is standard
    training; parameter proportions (1, 0) optimise the hyperparameters on the second chunk as a
    validation set.
    """

    method: Literal["partitioned"] = "partitioned"
    train_on: Literal["train", "all"] = "all"
    """No validation split is needed to learn hyperparameters; `train` keeps it for selection."""
    proportions: tuple[float, ...] = (0.8, 0.1, 0.1)
    """Share of the training data per chunk."""
    parameter_proportions: tuple[float, ...] | Literal["lean", "as_data"] = "lean"
    """Share of the weights per partition: 3 % for each but the first (`lean`; in a net with too few
    units for that as `proportions`), as `proportions` (`as_data`), or numbers."""
    scheme: Scheme = "node"
    """Deal out single weights (`random`), or hidden units."""
    mixed: bool = True
    """Node scheme only: each weight step updates all partitions by one step over a mixed batch."""
    defaults: Literal["zero", "initial", "seed"] = "zero"
    """What a subnetwork reads for later partitions: zeros; the initial weights, as deep nets
    without norms need, from a copy; or the same drawn again from the seed at each step."""
    hyper_lr: float = Field(default=1e-3, gt=0)
    """Adam's constant rate for the hyperparameters. A range moves by about this much a step."""
    hyper_every: int = Field(default=1, gt=0)
    """Updates per hyperparameter step."""
    hyper_share: float = Field(default=0.2, ge=0, lt=1)
    """Share of each batch that moves the hyperparameters in the step that moves the weights: joint
    steps. 0 has hyperparameter steps of their own."""
    weight_decay_scaling: DecayScaling = "reciprocal"
    """How weight decay grows for partitions that are trained on less data."""
    num_extractor_layers: int = Field(default=0, ge=0)
    """Leading layers that hyperparameter steps alone learn, shared by all subnetworks."""
    lml_every: int = Field(default=1, gt=0)
    """Intervals between two evaluations of L_ML; the last interval always has one."""
    select_by_lml: bool = False
    """End with the state of the interval that had the largest L_ML."""
    finetune: Finetune | None = Finetune()
    """Last stage, in which all weights train on all data at fixed hyperparameters; None for no such
    stage."""
    metrics = (
        Metric("subnetwork/accuracy.*", Direction.UP, "", 4, "test accuracy of subnetwork k"),
        Metric("subnetwork/nll.*", Direction.DOWN, "nats", 4, "test nll of subnetwork k"),
    )

    @property
    def owned(self) -> tuple[float, ...]:
        """Share of the weights per partition."""
        if self.parameter_proportions == "as_data":
            return self.proportions
        if self.parameter_proportions == "lean":
            later = len(self.proportions) - 1
            return (1 - _LEAN * later, *(_LEAN,) * later)
        return self.parameter_proportions

    @classmethod
    def published(cls, **fields: Any) -> Self:
        """The form of Mlodozeniec et al. (2023): single weights, one partition a step.

        Example:
            >>> Partitioned.published(steps=100).mixed
            False
        """
        return cls(**{**PUBLISHED, **fields})

    def build(self, context: Context) -> Learner:
        kind = "PartitionedLearner" if self.finetune is None else "FinetunedLearner"
        learner: Learner = import_path.find(f"{_LEARNERS}:{kind}")(self, context)
        return learner

    @model_validator(mode="after")
    def _check_fields_agree(self) -> Self:
        _check_division(self.proportions, self.owned)
        if self.mixed and self.scheme != "node":
            raise ValueError(f"`mixed` with scheme `{self.scheme}`: set `scheme` to `node`.")
        if self.scheme == "node" and self.defaults != "zero":
            raise ValueError(
                f"`defaults` = `{self.defaults}`: a masked unit contributes nothing, so the node "
                "scheme has zero defaults."
            )
        if self.hyper_share and self.hyper_every > 1:
            raise ValueError(
                f"`hyper_share` with `hyper_every` {self.hyper_every}: joint steps move them "
                "in every step. Leave one of them out."
            )
        if self.hyper_share and self.batch_size < 2:
            raise ValueError(f"`batch_size` = {self.batch_size}: a joint step needs 2 examples.")
        return self

    @property
    def hyper_gradient(self) -> HyperGradient:
        return "fixed weights" if len(self.proportions) > 1 else "none"
