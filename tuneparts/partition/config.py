"""The settings of partitioned training."""

from typing import Literal, Self

from pydantic import Field, model_validator

from tuneparts.partition.assign import checked_proportions
from tuneparts.partition.optimizers import DecayScaling
from tuneparts.partition.subnetwork import Scheme
from tuneparts.training.learner import Context, Learner
from tuneparts.training.supervised import SupervisedConfig


class PartitionedConfig(SupervisedConfig):
    """Weights and hypers in one run, without validation data.

    One chunk is standard training; parameter proportions (1, 0) optimise the hypers on the second
    chunk as a validation set.
    """

    method: Literal["partitioned"] = "partitioned"
    train_on: Literal["train", "all"] = "all"
    """No validation split is needed to learn hypers; `train` keeps it for selection."""
    proportions: tuple[float, ...] = (0.8, 0.1, 0.1)
    """Share of the training data per chunk."""
    parameter_proportions: tuple[float, ...] | None = None
    """Share of the weights per partition; as `proportions` if None."""
    scheme: Scheme = "random"
    """Deal out single weights, or hidden units."""
    mixed: bool = False
    """Node scheme only: each weight step updates all partitions by one pass over a mixed batch."""
    defaults: Literal["zero", "initial", "seed"] = "zero"
    """What a subnetwork reads for later partitions: zeros; the initial weights, as deep nets
    without norms need, from a copy; or the same drawn again from the seed at each step."""
    hyper_lr: float = Field(default=1e-3, gt=0)
    """Adam's constant rate for the hypers. A range moves by about this much a step."""
    hyper_every: int = Field(default=1, gt=0)
    """Weight steps per hyper step."""
    weight_decay_scaling: DecayScaling = "reciprocal"
    """How weight decay grows for partitions that are trained on less data."""
    num_extractor_layers: int = Field(default=0, ge=0)
    """Leading layers that are learnt as a hyper: by hyper steps only, shared by all subnetworks."""
    lml_every: int = Field(default=1, gt=0)
    """Intervals between two evaluations of L_ML; the last interval always has one."""
    select_by_lml: bool = False
    """End with the state of the interval that had the largest L_ML."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        owned = self.parameter_proportions or self.proportions
        checked_proportions(self.proportions)
        checked_proportions(owned)
        if len(owned) != len(self.proportions):
            raise ValueError(
                f"chunks and partitions are equally many, but `proportions` has "
                f"{len(self.proportions)} entries and `parameter_proportions` {len(owned)}."
            )
        if self.mixed and self.scheme != "node":
            raise ValueError(
                "one pass updates several partitions in the node scheme only, but got `mixed` with "
                f"scheme `{self.scheme}`. Set `scheme` to `node`."
            )
        if self.scheme == "node" and self.defaults != "zero":
            raise ValueError(
                "a masked unit contributes nothing, so the node scheme has zero defaults, but got "
                f"`{self.defaults}`. Set `defaults` to `zero`, or `scheme` to `random`."
            )
        return self

    def build(self, context: Context) -> Learner:
        from tuneparts.partition.learner import PartitionedLearner  # which reads this config

        return PartitionedLearner(self, context)
