"""What a search is: a question, its data, and the arms that answer it. Frozen data, no Ray.

A *replicate* is one seed of an arm, with all the trials that its algorithm runs under that seed.
"""

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from tuneparts import catalog, schema
from tuneparts.config import Config, parse
from tuneparts.data.config import DataConfig
from tuneparts.data.target import Classes, Target
from tuneparts.data.task import NO_DATA, Task
from tuneparts.schema import selection_metric
from tuneparts.search.algorithms import (
    Algorithm,
    Asha,
    Fixed,
    GridSearch,
    Hyperband,
    Optuna,
    Pbt,
    RandomSearch,
    SuccessiveHalving,
    Tpe,
)
from tuneparts.search.space import Dimension
from tuneparts.search.stopping import Stop
from tuneparts.seeding import numpy_generator
from tuneparts.training.learner import MethodConfig

__all__ = [
    "Algorithm",
    "Arm",
    "Asha",
    "Fixed",
    "GridSearch",
    "Hyperband",
    "Optuna",
    "Pbt",
    "RandomSearch",
    "Resources",
    "Scale",
    "Search",
    "SuccessiveHalving",
    "Tpe",
]

T = TypeVar("T")
NAME = r"^[a-z][a-z0-9_]*$"


class Scale(StrEnum):
    """The size at which a question is asked."""

    SMOKE = "smoke"
    """Seconds: does everything run?"""
    CPU = "cpu"
    """Minutes to an hour on a small machine: does the effect show?"""
    PAPER = "paper"
    """The published setting, on GPUs."""

    def pick(self, *, smoke: T, cpu: T, paper: T) -> T:
        """Choose the value for this scale.

        Example:
            >>> Scale.SMOKE.pick(smoke=10, cpu=1_000, paper=100_000)
            10
        """
        return {Scale.SMOKE: smoke, Scale.CPU: cpu, Scale.PAPER: paper}[self]


class Resources(Config):
    """What one trial reserves on a machine."""

    cpus: float = Field(default=1, gt=0)
    gpus: float = Field(default=0, ge=0)
    """A fraction lets several trials share one device."""
    memory_gb: float = Field(default=0, ge=0)
    custom: dict[str, float] = Field(default_factory=dict)
    """Resources that a cluster declares under names of its own -> amount."""


class Arm(Config):
    """One method, what is varied of it, and how.

    Example:
        >>> from tuneparts.baselines.standard import StandardConfig
        >>> from tuneparts.search.space import Uniform
        >>> arm = Arm(
        ...     name="random",
        ...     config=StandardConfig(passes=400, interval=100),
        ...     algorithm=RandomSearch(num_trials=8),
        ...     space={"optimiser.lr": Uniform(low=1e-4, high=1e-1, log=True)},
        ... )
        >>> arm.trials_per_seed
        8
    """

    later_fields = ("stop",)

    name: str = Field(pattern=NAME)
    config: SerializeAsAny[MethodConfig]
    """The method's config. The space varies some of its fields; the others are as they stand."""
    algorithm: SerializeAsAny[Algorithm] = Fixed()
    """Any `Algorithm`, our own or not."""
    space: dict[str, SerializeAsAny[Dimension]] = Field(default_factory=dict)
    """Dotted path of a field of the config (`optimiser.lr`) -> its distribution."""
    seeds: tuple[int, ...] | None = None
    """A replicate runs under each; None takes those of the search."""
    follows: str | None = None
    """Name of the leader: train at the hypers of its selected trial, replicate by replicate."""
    resources: Resources = Resources()
    max_failures: int | None = Field(default=None, ge=0)
    """As of the search, for this arm; None takes that of the search."""
    at_once: int | None = Field(default=None, gt=0)
    """Most trials of this arm that run side by side; None for as many as there is room for."""
    stop: Stop | None = None
    """Limits of each replicate, in the place of those that the search has for all."""
    budget_note: str = ""
    """Why a trial of this arm spends another number of passes than the search says."""

    @field_validator("config", mode="before")
    @classmethod
    def _parse_method(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            found = catalog.config_class(str(value.get("method")))
            # A method of an installed package has a name, and its import path is one too.
            return parse(found, {**value, "method": found.model_fields["method"].default})
        return value

    @field_validator("algorithm", mode="before")
    @classmethod
    def _parse_algorithm(cls, value: Any) -> Any:
        return Algorithm.made_from(value)

    @field_validator("space", mode="before")
    @classmethod
    def _parse_space(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {path: Dimension.made_from(dim) for path, dim in value.items()}

    @model_validator(mode="after")
    def _check_arm(self) -> "Arm":
        catalog.check(self.config)
        if self.algorithm.has_space != bool(self.space):
            raise ValueError(
                f"an arm has a space exactly when its algorithm draws from one, but `{self.name}` "
                f"has algorithm `{self.algorithm.kind}` and {len(self.space)} dimensions"
            )
        if self.follows is not None and type(self.algorithm) is not Fixed:
            raise ValueError(f"`{self.name}` follows `{self.follows}`, so it cannot search itself")
        if self.resources.gpus > self.config.most_gpus:
            raise ValueError(
                f"a trial of `{self.config.model_dump()['method']}` uses at most "
                f"{self.config.most_gpus:g} GPU, but `{self.name}` reserves "
                f"{self.resources.gpus:g}; lower its `resources.gpus`"
            )
        # A draw that does not fit the config is refused now, and not in a worker an hour later.
        rng = numpy_generator(0, "validate a space")
        self.config.replaced({path: dim.sample(rng) for path, dim in self.space.items()})
        self.algorithm.check(self)
        return self

    @property
    def trials_per_seed(self) -> int:
        """Number of trials in one replicate."""
        return self.algorithm.trials_per_seed(self.space)


class Search(Config):
    """A question, and the arms that are compared to answer it."""

    later_fields = ("stop",)

    name: str = Field(pattern=NAME)
    question: str
    notes: str = ""
    """What the paper did and what differs here."""
    scale: Scale
    data: DataConfig | None = None
    """What is learnt from; None where no arm needs any."""
    metric: str = Field(default_factory=lambda fields: _usual_metric(fields.get("data")))
    """The metric that selects one trial of each replicate; never one of test data. The first metric
    of the target, such as `val/accuracy` or `val/mse`, unless given."""
    passes: int = Field(gt=0)
    """Budget of every trial in passes; an arm with another one says why in its `budget_note`."""
    seeds: tuple[int, ...] = Field(min_length=1)
    arms: tuple[Arm, ...] = Field(min_length=1)
    score_test_always: bool = False
    """Score test data at each interval, for curves; selection never reads it."""
    at_once: int | None = Field(default=None, gt=0)
    """Most trials of all arms that run side by side; None for as many as there is room for."""
    figures: tuple[str, ...] = ("scores", "accuracy", "hypers", "projections", "best_of_n")
    stop: Stop | None = None
    """Limits at which the search, or a replicate of an arm, runs nothing more."""
    keep_models: bool = False
    """Log the final model of each selected trial to MLflow; off because of its size."""
    keep_checkpoints: bool = False
    """Keep the last state of every trial, not only of those selected or failed."""
    max_failures: int = Field(default=3, ge=0)
    """How often a trial is started again after a lost worker, without a new row in between."""

    @field_validator("data", mode="before")
    @classmethod
    def _parse_data(cls, value: Any) -> Any:
        return {"name": value} if callable(value) or isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_metric(self) -> "Search":
        # After the arms, because their methods may declare it.
        selection_metric(self.metric)
        for arm in self.arms:
            reported = [metric.name for metric in arm.config.declared_metrics()]
            if arm.config.needs_data and self.data is None:
                raise ValueError(f"`{arm.name}` learns from data, so the search needs `data`")
            if self._lacks_metric(arm):
                raise ValueError(
                    f"trials are compared by {self.metric}, but those of `{arm.name}` would hold "
                    "out no validation data: set `num_val` of the data, and `train_on` of the arm "
                    "to 'train', or select by another metric"
                )
            if not arm.config.needs_data and self.metric not in reported:
                raise ValueError(
                    f"every arm reports the selection metric `{self.metric}`, but `{arm.name}` "
                    f"reports {', '.join(reported)}"
                )
            if self.data is not None and self.metric not in reported:
                _check_reported(self.metric, self.data.target)
        return self

    @model_validator(mode="after")
    def _check_arms(self) -> "Search":
        names = [arm.name for arm in self.arms]
        if len(set(names)) < len(names):
            raise ValueError(f"arms have names of their own, but got {names}")
        for position, arm in enumerate(self.arms):
            if arm.config.passes != self.passes and not arm.budget_note:
                raise ValueError(
                    f"every arm spends {self.passes} passes a trial, but `{arm.name}` spends "
                    f"{arm.config.passes}; make them equal, or say why in `budget_note`"
                )
            seeds = self.seeds_of(arm)
            if not seeds or len(set(seeds)) < len(seeds):
                raise ValueError(
                    f"an arm has at least one seed and each seed once, but `{arm.name}` has "
                    f"{list(seeds)}"
                )
            if arm.follows is not None:
                if arm.follows not in names[:position]:
                    raise ValueError(
                        f"`{arm.name}` follows `{arm.follows}`, which is not an arm before it"
                    )
                leader = self.arms[names.index(arm.follows)]
                alone = set(self.seeds_of(arm)) - set(self.seeds_of(leader))
                if alone:
                    raise ValueError(
                        f"`{arm.name}` follows `{arm.follows}` seed by seed, but seeds "
                        f"{sorted(alone)} are not among the leader's"
                    )
        return self

    @model_validator(mode="after")
    def _check_stops(self) -> "Search":
        for arm in self.arms:
            stop = self.stop_of(arm.name)
            if stop is None or arm.algorithm.keeps_first_trials:
                continue
            is_own = arm.stop is not None
            if stop.goes_by_trials or (is_own and stop.passes is not None):
                raise ValueError(
                    "a rule that looks at one trial after the other needs trials that do not "
                    f"depend on those behind them, but those of `{arm.algorithm.kind}` do. Give "
                    f"`{arm.name}` a `stop` of its own with `hours` or `gpu_hours`, or an empty one"
                )
        return self

    def stop_of(self, arm: str) -> Stop | None:
        """The limits of each replicate of an arm: its own, or those of the search."""
        own = self.arm(arm).stop
        return self.stop if own is None else own

    def _lacks_metric(self, arm: Arm) -> bool:
        """Whether several trials of an arm are to be compared by data that nobody holds out."""
        is_held_out = getattr(arm.config, "train_on", "train") == "train"
        return (
            self.data is not None
            and arm.config.needs_data
            and self.metric.startswith("val/")
            and self.metric in schema.BUILT_IN
            and arm.trials_per_seed > 1
            and not (is_held_out and self.data.num_val > 0)
        )

    def max_failures_of(self, arm: str) -> int:
        """How many lost workers in a row an arm forgives a trial."""
        own = self.arm(arm).max_failures
        return self.max_failures if own is None else own

    def seeds_of(self, arm: Arm) -> tuple[int, ...]:
        """The seeds of an arm; each is a replicate."""
        return self.seeds if arm.seeds is None else arm.seeds

    def load_data(self) -> Task:
        """Read and split the data; a task without examples where the search has none."""
        return NO_DATA if self.data is None else self.data.load()

    def arm(self, name: str) -> Arm:
        """The arm of this name."""
        return next(arm for arm in self.arms if arm.name == name)

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that change with whatever could change a result."""
        words = (
            "question", "notes", "figures", "keep_models", "keep_checkpoints", "max_failures",
            "at_once",
        )  # fmt: skip
        of_arms = {"__all__": {"max_failures", "at_once"}}
        exclude: Any = {**dict.fromkeys(words, True), "arms": of_arms}
        facts = self.model_dump(mode="json", exclude=exclude)
        if self.data is not None:
            facts["data"] = self.data.facts()
        text = json.dumps(facts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def _usual_metric(data: DataConfig | None) -> str:
    return "" if data is None else data.target.reported()[0].name


def _check_reported(metric: str, target: Target) -> None:
    """Refuse to select by a score of classes where there are none."""
    own = [one.name for one in target.reported()]
    if metric.startswith("val/") and metric not in own and not isinstance(target, Classes):
        usable = ", ".join(name for name in own if name.startswith("val/"))
        raise ValueError(
            f"arms report the selection metric, but for the target `{target.kind}` there is no "
            f"`{metric}`. Use one of: {usable}"
        )
