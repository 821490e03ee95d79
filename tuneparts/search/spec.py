"""What a search is: a question, its data, and the arms that answer it. Frozen data, no Ray.

A *replicate* is one seed of an arm, with all the trials that its algorithm runs under that seed.
"""

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from tuneparts import catalog
from tuneparts.config import Config, parse
from tuneparts.data.config import DataConfig
from tuneparts.data.task import NO_DATA, Task
from tuneparts.schema import selection_metric
from tuneparts.search.space import Choice, Dimension
from tuneparts.seeding import numpy_generator
from tuneparts.training.learner import MethodConfig

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


class Fixed(Config):
    """One trial per seed, at the arm's own config."""

    kind: Literal["fixed"] = "fixed"


class RandomSearch(Config):
    """Trials at independent draws from the space."""

    kind: Literal["random"] = "random"
    num_trials: int = Field(gt=0)


class GridSearch(Config):
    """A trial for every combination of the space's choices."""

    kind: Literal["grid"] = "grid"


class Tpe(Config):
    """Optuna's tree-structured Parzen estimator, asked for a whole batch of trials at a time.

    A batch is told only when all of it has ended, so that the order in which trials end cannot
    change what is asked next.
    """

    kind: Literal["tpe"] = "tpe"
    num_trials: int = Field(gt=0)
    batch: int = Field(default=4, gt=0)
    """Trials per batch; they can run side by side, and each batch learns from all before it."""
    num_startup: int = Field(default=10, ge=1)
    """Random trials before the estimator takes over."""


class Asha(Config):
    """Successive halving (Li et al. 2020): trials compete at rungs, and few reach the full budget.

    Whether a trial continues is decided by the asynchronous rule, applied in the order of trials
    and not of arrival.
    """

    kind: Literal["asha"] = "asha"
    num_trials: int = Field(gt=0)
    min_passes: int = Field(gt=0)
    """Passes of the first rung."""
    reduction: int = Field(default=4, ge=2)
    """Reduction factor r: about the best 1/r of a rung continue, to a rung r times longer."""


class Pbt(Config):
    """Population-based training (Jaderberg et al. 2017).

    All members train for a round. Then the worst copy weights and hypers of the best, vary the
    hypers, and the next round starts.
    """

    kind: Literal["pbt"] = "pbt"
    population: int = Field(ge=4)
    num_rounds: int = Field(ge=2)
    quantile: float = Field(default=0.25, gt=0, le=0.5)
    """Fraction of the population that copies, and that is copied from."""
    resample: float = Field(default=0.25, ge=0, le=1)
    """Probability that a copied value is drawn anew instead of perturbed."""


Algorithm: TypeAlias = Annotated[
    Fixed | RandomSearch | GridSearch | Tpe | Asha | Pbt, Field(discriminator="kind")
]


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

    name: str = Field(pattern=NAME)
    config: SerializeAsAny[MethodConfig]
    """The method's config. The space varies some of its fields; the others are as they stand."""
    algorithm: Algorithm = Fixed()
    space: dict[str, Dimension] = Field(default_factory=dict)
    """Dotted path of a field of the config (`optimiser.lr`) -> its distribution."""
    seeds: tuple[int, ...] | None = None
    """A replicate runs under each; None takes those of the search."""
    follows: str | None = None
    """Name of the leader: train at the hypers of its selected trial, replicate by replicate."""
    resources: Resources = Resources()
    budget_note: str = ""
    """Why a trial of this arm spends another number of passes than the search says."""

    @field_validator("config", mode="before")
    @classmethod
    def _parse_method(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return parse(catalog.config_class(str(value.get("method"))), value)
        return value

    @model_validator(mode="after")
    def _check_arm(self) -> "Arm":
        if (self.algorithm.kind == "fixed") == bool(self.space):
            raise ValueError(
                f"an arm has a space exactly when its algorithm draws from one, but `{self.name}` "
                f"has algorithm `{self.algorithm.kind}` and {len(self.space)} dimensions"
            )
        if self.follows is not None and self.algorithm.kind != "fixed":
            raise ValueError(f"`{self.name}` follows `{self.follows}`, so it cannot search itself")
        if self.algorithm.kind == "grid":
            loose = [path for path, dim in self.space.items() if not isinstance(dim, Choice)]
            if loose:
                raise ValueError(f"grid search needs a Choice for each dimension, not {loose}")
        # A draw that does not fit the config is refused now, and not in a worker an hour later.
        rng = numpy_generator(0, "validate a space")
        self.config.replaced({path: dim.sample(rng) for path, dim in self.space.items()})
        if isinstance(self.algorithm, Asha) and self.algorithm.min_passes % self.config.interval:
            raise ValueError(
                "a rung is a whole number of intervals: `min_passes % interval == 0` must hold, "
                f"but got {self.algorithm.min_passes} % {self.config.interval}"
            )
        if isinstance(self.algorithm, Pbt):
            steps = self.algorithm.num_rounds * self.config.interval
            if self.config.passes % steps:
                raise ValueError(
                    "a round of the population is a whole number of intervals: "
                    f"`passes % (num_rounds * interval) == 0` must hold, but got "
                    f"{self.config.passes} % {steps}"
                )
        return self

    @property
    def trials_per_seed(self) -> int:
        """Number of trials in one replicate."""
        algorithm = self.algorithm
        if isinstance(algorithm, GridSearch):
            count = 1
            for dim in self.space.values():
                count *= len(dim.options) if isinstance(dim, Choice) else 1
            return count
        if isinstance(algorithm, Pbt):
            return algorithm.population
        return 1 if isinstance(algorithm, Fixed) else algorithm.num_trials


class Search(Config):
    """A question, and the arms that are compared to answer it."""

    name: str = Field(pattern=NAME)
    question: str
    notes: str = ""
    """What the paper did and what differs here."""
    scale: Scale
    data: DataConfig | None = None
    """What is learnt from; None where no arm needs any."""
    metric: str
    """The metric that selects one trial of each replicate; never one of test data."""
    passes: int = Field(gt=0)
    """Budget of every trial in passes; an arm with another one says why in its `budget_note`."""
    seeds: tuple[int, ...] = Field(min_length=1)
    arms: tuple[Arm, ...] = Field(min_length=1)
    score_test_always: bool = False
    """Score test data at each interval, for curves; selection never reads it."""
    figures: tuple[str, ...] = ("scores", "accuracy", "hypers", "projections", "best_of_n")
    keep_models: bool = False
    """Log the final model of each selected trial to MLflow; off because of its size."""

    @model_validator(mode="after")
    def _check_metric(self) -> "Search":
        # After the arms, because their methods may declare it.
        selection_metric(self.metric)
        for arm in self.arms:
            reported = [metric.name for metric in arm.config.declared_metrics()]
            if arm.config.needs_data and self.data is None:
                raise ValueError(f"`{arm.name}` learns from data, so the search needs `data`")
            if not arm.config.needs_data and self.metric not in reported:
                raise ValueError(
                    f"every arm reports the selection metric `{self.metric}`, but `{arm.name}` "
                    f"reports {', '.join(reported)}"
                )
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
        words = {"question", "notes", "figures", "keep_models"}
        facts = self.model_dump(mode="json", exclude=words)
        text = json.dumps(facts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]
