"""What a search is: a question, its data, and the arms that answer it. Frozen data, no Ray.

A *replicate* is one seed of an arm, with all the trials that its algorithm runs under that seed.
"""

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, TypeVar

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from tuneparts.core import schema
from tuneparts.core.config import Config, differing
from tuneparts.core.errors import printable
from tuneparts.core.schema import objective_metric, selection_metric
from tuneparts.core.selection import Best, Selection
from tuneparts.data.config import DataConfig
from tuneparts.data.target import Classes, Target
from tuneparts.data.task import NO_DATA, Task
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
from tuneparts.search.arm import (
    DATA,
    DATA_KEY,
    NAME,
    Arm,
    ArmSeeds,
    Resources,
    method_config,
    refuse_packed_runtime,
    variant_name,
)
from tuneparts.search.space import Value
from tuneparts.search.stopping import Stop
from tuneparts.training.config import Runtime

__all__ = [
    "DATA",
    "DATA_KEY",
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
    "method_config",
    "variant_name",
]


T = TypeVar("T")


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


def _usual_metric(fields: Mapping[str, Any]) -> str:
    if fields.get("objectives"):
        return str(fields["objectives"][0])
    data: DataConfig | None = fields.get("data")
    return "" if data is None else data.target.reported()[0].name


class Search(Config):
    """A question, and the arms that are compared to answer it."""

    name: str = Field(pattern=NAME)
    question: str
    notes: str = ""
    """What the paper did and what differs here."""
    scale: Scale
    data: DataConfig | None = None
    """What is learnt from; None where no arm needs any."""
    objectives: tuple[str, ...] = ()
    """Several metrics to weigh against each other, such as `("val/accuracy", "size/parameters")`;
    the first is the selection metric, and none is of test data. Empty for one metric."""
    selection: SerializeAsAny[Selection] = Best()
    """Which trial of a replicate stands for it: `Best` by the metric, or the best `Within`
    limits."""
    metric: str = Field(default_factory=_usual_metric)
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
    compare: tuple[str, ...] = ()
    """The two arms whose contrast answers the question, such as `("partitioned", "random")`."""
    references: tuple[str, ...] = ()
    """Arms that bound the others instead of competing, worst first: `("none", "oracle")`."""
    answer: Literal["difference", "equivalent_trials", "found"] = "difference"
    """What the answer states of the contrast: the difference of scores, how many trials of the
    second arm one run of the first is worth, or the values of `found` that both found."""
    within: float | None = Field(default=None, gt=0)
    """Margin within which two scores count as equivalent, set before anything is run."""
    found: dict[str, float | None] = Field(default_factory=dict)
    """Hypers that the question is about, such as `hyper/rotation`, and their true values where the
    data was made with them."""
    figures: tuple[str, ...] = ("scores", "accuracy", "hypers", "projections", "best_of_n")
    stop: Stop | None = None
    """Limits at which the search runs nothing more."""
    runtime: Runtime | None = None
    """How arms that say nothing of their own compute: precision, layout, memory. It is written into
    the configs of these arms."""
    keep_models: bool = False
    """Log the final model of each selected trial to MLflow; off because of its size."""
    keep_checkpoints: bool = False
    """Keep the last state of every trial, not only of those selected or failed."""
    max_failures: int = Field(default=3, ge=0)
    """How often a trial is started again after a lost worker, without a new row in between."""

    @field_validator("question", "notes")
    @classmethod
    def _refuse_control_signs(cls, value: str) -> str:
        if printable(value) != value:
            raise ValueError(
                f"questions and notes are plain text, but got `{printable(value)}`. Remove the "
                "control characters: a terminal would obey them."
            )
        return value

    @field_validator("data", mode="before")
    @classmethod
    def _parse_data(cls, value: Any) -> Any:
        return {"name": value} if callable(value) or isinstance(value, str) else value

    @field_validator("selection", mode="before")
    @classmethod
    def _parse_selection(cls, value: Any) -> Any:
        return Selection.made_from(value)

    @model_validator(mode="after")
    def _give_runtime(self) -> "Search":
        if self.runtime is not None:
            arms = tuple(_computing(arm, self.runtime) for arm in self.arms)
            object.__setattr__(self, "arms", arms)  # still before anyone has seen this search
        return self

    @model_validator(mode="after")
    def _check_objectives(self) -> "Search":
        names = self.objectives
        if names and (len(names) < 2 or len(set(names)) < len(names)):
            raise ValueError(
                f"objectives are two or more different metrics, but got {list(names)}; one metric "
                "alone is the `metric`"
            )
        if names and names[0] != self.metric:
            raise ValueError(
                "the first objective is the selection metric, but they are "
                f"{names[0]} and {self.metric}; leave `metric` out"
            )
        for name in names:
            objective_metric(name)
        return self

    @property
    def all_objectives(self) -> tuple[schema.Metric, ...]:
        """The metrics to weigh; the selection metric alone where there is one objective."""
        return tuple(map(schema.lookup, self.objectives or (self.metric,)))

    @model_validator(mode="after")
    def _check_metric(self) -> "Search":
        # After the arms, because their methods may declare it.
        selection_metric(self.metric)
        for arm in self.arms:
            reported = [metric.name for metric in arm.config.declared_metrics()]
            if arm.config.needs_data and self.data is None:
                raise ValueError(f"`{arm.name}` learns from data, so the search needs `data`")
            for changes in arm.data_variants():
                if changes and self.data is None:
                    raise ValueError(
                        f"`{arm.name}` varies {', '.join(changes)} of the data, but the search "
                        "has none"
                    )
                if self.data is not None:
                    self.data.replaced(changes)
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
                _check_adopted(arm, leader)
        return self

    @model_validator(mode="after")
    def _check_contrast(self) -> "Search":
        names = [arm.name for arm in self.arms]
        strange = [name for name in (*self.compare, *self.references) if name not in names]
        if strange or len(self.compare) not in (0, 2) or len(set(self.compare)) == 1:
            raise ValueError(
                "`compare` names two arms of the search and `references` others, but got "
                f"{list(self.compare)} and {list(self.references)}"
            )
        if len({self.arm(name).judged_on for name in self.compare}) > 1:
            raise ValueError(
                f"arms are compared on the same examples, but {' and '.join(self.compare)} are "
                "judged on different ones"
            )
        if self.answer != "difference" and not self.compare:
            raise ValueError(f"the answer `{self.answer}` is about a contrast: set `compare`")
        if self.answer == "found" and not self.found:
            raise ValueError("the answer `found` is about hypers: name them in `found`")
        return self

    @model_validator(mode="after")
    def _check_stops(self) -> "Search":
        target = None if self.stop is None else self.stop.target
        for arm in self.arms if target is not None else ():
            if not arm.algorithm.keeps_first_trials:
                raise ValueError(
                    f"`stop.target` = {target:g}: a target needs trials that do not depend on "
                    f"later ones, but those of `{arm.name}` (`{arm.algorithm.kind}`) do. Leave out "
                    "the arm, or use `stop.hours`"
                )
        return self

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

    def declared_metrics(self) -> tuple[schema.Metric, ...]:
        """List the metrics that the target and the methods declare, each once."""
        found = list(() if self.data is None else self.data.target.reported())
        for arm in self.arms:
            found += arm.config.declared_metrics()
        return tuple(dict.fromkeys(found))

    def max_failures_of(self, arm: str) -> int:
        """How many lost workers in a row an arm forgives a trial."""
        own = self.arm(arm).max_failures
        return self.max_failures if own is None else own

    def seeds_of(self, arm: Arm) -> tuple[int, ...]:
        """The seeds of an arm; each is a replicate."""
        return self.seeds if arm.seeds is None else arm.seeds

    @property
    def draws_data(self) -> bool:
        """Whether each replicate has data of its own."""
        return self.data is not None and self.data.seed is None

    def arm_seeds(self, arm: Arm) -> ArmSeeds:
        """Which seed each source of randomness has in the replicates of an arm."""
        return ArmSeeds(arm.name, is_fresh=arm.fresh_seed, draws_data=self.draws_data)

    def data_draws(self) -> list[int | None]:
        """The seeds of all draws of the data, in order of the replicates; None for a fixed one."""
        seeds = ((self.arm_seeds(arm), seed) for arm in self.arms for seed in self.seeds_of(arm))
        return list(dict.fromkeys(own.data(seed) for own, seed in seeds))

    def load_data(
        self, changes: Mapping[str, Value] | None = None, draw: int | None = None
    ) -> Task:
        """Read and split a draw of the data, with changes to its config (path -> value).

        A task without examples where the search has none.
        """
        if self.data is None:
            return NO_DATA
        return (self.data.replaced(changes) if changes else self.data).load(draw)

    def load_variants(self, draw: int | None = None) -> dict[str, Task]:
        """Load every variant of a draw of the data that trials have: `variant_name` -> task."""
        changes = {
            variant_name(one): one for arm in self.arms for one in arm.data_variants() if one
        }
        return {name: self.load_data(one, draw) for name, one in changes.items()}

    def arm(self, name: str) -> Arm:
        """The arm of this name."""
        return next(arm for arm in self.arms if arm.name == name)

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that change with whatever could change a result."""
        words = (
            "question", "notes", "figures", "keep_models", "keep_checkpoints", "max_failures",
            "at_once", "compare", "references", "answer", "within", "found",
        )  # fmt: skip
        of_arms = {"__all__": {"max_failures", "at_once"}}
        exclude: Any = {**dict.fromkeys(words, True), "arms": of_arms}
        facts = differing(self, self.model_dump(mode="json", exclude=exclude))
        text = json.dumps(facts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def _computing(arm: Arm, runtime: Runtime) -> Arm:
    """An arm under the runtime of the search, unless it has its own, or can have none."""
    config = arm.config
    if config.runtime is not None or not config.takes_runtime:
        return arm
    found = arm.model_copy(update={"config": config.replaced({"runtime": runtime.model_dump()})})
    refuse_packed_runtime(found)
    return found


def _check_adopted(arm: Arm, leader: Arm) -> None:
    """Refuse to take over what a leader drew where it does not fit."""
    if arm.adopts == "hypers":
        return
    if not leader.space or type(leader.config) is not type(arm.config):
        raise ValueError(
            f"an arm adopts what a leader of the same method drew from its space, but "
            f"`{arm.name}` follows `{leader.name}`, which has {len(leader.space)} dimensions and "
            f"the method `{leader.config.model_dump()['method']}`"
        )


def _check_reported(metric: str, target: Target) -> None:
    """Refuse to select by a score of classes where there are none."""
    own = [one.name for one in target.reported()]
    if metric.startswith("val/") and metric not in own and not isinstance(target, Classes):
        usable = ", ".join(name for name in own if name.startswith("val/"))
        raise ValueError(
            f"arms report the selection metric, but for the target `{target.kind}` there is no "
            f"`{metric}`. Use one of: {usable}"
        )
