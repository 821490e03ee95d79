"""What a search is: a question, its data, and the arms that answer it."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator, model_validator

import tuneparts
from tuneparts.core import schema
from tuneparts.core.config import Config, differing
from tuneparts.core.errors import printable
from tuneparts.core.schema import objective_metric, selection_metric
from tuneparts.core.selection import Best, Selection
from tuneparts.data.config import Data, read
from tuneparts.data.target import Classes
from tuneparts.data.task import NO_DATA, Task
from tuneparts.hypers import Hypers
from tuneparts.nets import Net
from tuneparts.search.arm import NAME, Arm, Resources, variant_name
from tuneparts.search.events import Row
from tuneparts.search.space import Value
from tuneparts.search.stopping import Stop
from tuneparts.training.config import AnyOptimiser, Runtime

if TYPE_CHECKING:
    from tuneparts import Results

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
        """Choose the value for this scale."""
        return {Scale.SMOKE: smoke, Scale.CPU: cpu, Scale.PAPER: paper}[self]


def _usual_metric(fields: Mapping[str, Any]) -> str:
    if fields.get("objectives"):
        return str(fields["objectives"][0])
    data: Data | None = fields.get("data")
    arms: tuple[Arm, ...] = fields.get("arms", ())
    if data is not None:
        return data.target.reported()[0].name
    return next((one.name for arm in arms[:1] for one in arm.config.declared_metrics()), "")


_SHARED = (
    "net", "hypers", "steps", "interval", "batch_size", "optimiser", "runtime", "resources"
)  # fmt: skip
"""Fields of a search that arms take over where they have them and do not set them."""
of_file: ContextVar[tuple[str, str, Scale]] = ContextVar(
    "name, question and scale of the file", default=("search", "", Scale.CPU)
)
"""What a search that is made in a file need not say."""


class Search(Config):
    """A question, and the arms that are compared to answer it.

    What all arms share stands here; an arm says where it differs.

    Example:
        >>> import tuneparts as tp
        >>> search = tp.Search(
        ...     data=tp.data.Digits(num_val=300),
        ...     net=tp.nets.DigitsCnn(),
        ...     steps=400,
        ...     seeds=3,
        ...     arms={
        ...         "default": tp.Standard(),
        ...         "random": tp.Standard().searched_by(tp.RandomSearch(8), lr=tp.Uniform(0, 0.1)),
        ...     },
        ... )
        >>> search.arm("random").config.steps, search.seeds
        (400, (0, 1, 2))
    """

    name: str = Field(default_factory=lambda: of_file.get()[0], pattern=NAME)
    """That of the file, unless given."""
    question: str = Field(default_factory=lambda: of_file.get()[1])
    """The first paragraph of the file, unless given."""
    notes: str = ""
    """What the paper did and what differs here."""
    scale: Scale = Field(default_factory=lambda: of_file.get()[2])
    """That for which the file was asked, unless given."""
    data: Annotated[SerializeAsAny[Data] | None, BeforeValidator(read)] = None
    """What is learnt from; None where no arm needs any."""
    net: Net | None = None
    """The net of all arms that name none."""
    hypers: Hypers | None = None
    """Those of all arms that name none: learnt, searched or given, as the arm says."""
    interval: int | None = Field(default=None, gt=0)
    """Steps between two reports; a tenth of the steps unless given."""
    batch_size: int | None = Field(default=None, gt=0)
    optimiser: AnyOptimiser | None = None
    arms: tuple[Arm, ...] = Field(min_length=1)
    """Name -> method, or `Arm` for one that needs more than a config."""
    objectives: tuple[str, ...] = ()
    """Several metrics to weigh against each other, such as `("val/accuracy", "size/parameters")`;
    the first is the selection metric, and none is of test data. Empty for one metric."""
    selection: Annotated[SerializeAsAny[Selection], BeforeValidator(Selection.made_from)] = Best()
    """Which trial of each seed is selected: `Best` by the metric, or the best `Within` limits."""
    metric: str = Field(default_factory=_usual_metric)
    """The metric that selects one trial of each seed; never one of test data. The first metric
    of the target, such as `val/accuracy` or `val/mse`, unless given."""
    steps: int = Field(default_factory=lambda fields: fields["arms"][0].config.steps, gt=0)
    """Budget of every trial in steps; an arm with another one says why in its `budget_note`. That
    of the first arm, unless given."""
    seeds: tuple[int, ...] = Field(default=(0, 1, 2), min_length=1)
    """Every arm runs under each of them; a number n means 0 to n - 1."""
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
    """Hyperparameters that the question is about, such as `hyper/rotation`, and their true values
    where the data was made with them."""
    figures: tuple[str, ...] = ("scores", "accuracy", "hypers", "projections", "best_of_n")
    stop: Stop | None = None
    """Limits at which the search runs nothing more."""
    runtime: Runtime | None = None
    """How arms that name none compute: precision, layout, memory."""
    resources: Resources | None = None
    """What a trial of arms that say nothing reserves."""
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
            raise ValueError(f"questions and notes are plain text, but got `{printable(value)}`")
        return value

    @field_validator("arms", mode="before")
    @classmethod
    def _name_arms(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        arms = []
        for name, arm in value.items():
            given = arm if isinstance(arm, Mapping) else {"config": arm}
            if isinstance(arm, Arm):
                given = {field: getattr(arm, field) for field in arm.model_fields_set}
            arms.append({**given, "name": name})
        return arms

    @field_validator("seeds", mode="before")
    @classmethod
    def _count_seeds(cls, value: Any) -> Any:
        return tuple(range(value)) if isinstance(value, int) else value

    @model_validator(mode="after")
    def _check_search(self) -> "Search":
        shared = {name: getattr(self, name) for name in _SHARED}
        shared = {name: value for name, value in shared.items() if value is not None}
        arms = tuple(arm.completed(shared) for arm in self.arms)
        object.__setattr__(self, "arms", arms)  # still before anyone has seen this search
        objectives, names = self.objectives, [arm.name for arm in self.arms]
        if objectives and len(set(objectives)) < max(2, len(objectives)):
            raise ValueError(f"`objectives` = {list(objectives)}: take two or more metrics")
        if objectives and objectives[0] != self.metric:
            words = f"the first objective is the selection metric, not `{self.metric}`"
            raise ValueError(f"`objectives` = {list(objectives)}: {words}")
        for name in objectives:
            objective_metric(name)
        selection_metric(self.metric)
        if len(set(names)) < len(names):
            raise ValueError(f"`arms` = {names}: give each another name")
        for position, arm in enumerate(self.arms):
            self._check_data(arm)
            self._check_arm(arm, self.arms[:position])
        self._check_contrast(names)
        return self

    def run(self, **options: Any) -> "Results":
        """Run the search to its end, and return what it found; the options are those of `run`."""
        return tuneparts.run(self, **options)

    @property
    def all_objectives(self) -> tuple[schema.Metric, ...]:
        """The metrics to weigh; the selection metric alone where there is one objective."""
        return tuple(map(schema.lookup, self.objectives or (self.metric,)))

    def _check_data(self, arm: Arm) -> None:
        metric, data, needs_data = self.metric, self.data, arm.config.needs_data
        if data is None and (needs_data or arm.has_variants):
            raise ValueError(f"`data` = None: `{arm.name}` learns from data; give the search some")
        for changes in arm.data_variants():
            if data is not None:
                data.replaced(changes)
        is_held_out = data is not None and data.num_val > 0
        is_held_out &= getattr(arm.config, "train_on", "train") == "train"
        is_own_score = metric.startswith("val/") and metric in schema.BUILT_IN
        if needs_data and is_own_score and arm.trials_per_seed > 1 and not is_held_out:
            raise ValueError(
                f"`metric` = {metric}: trials of `{arm.name}` would be compared by it, but hold "
                "out no validation data. Set `num_val` of the data, and `train_on` of the arm to "
                "'train', or select by another metric"
            )
        reported = [one.name for one in arm.config.declared_metrics()]
        if metric in reported:
            return
        if not needs_data:
            words = ", ".join(reported)
            raise ValueError(f"`metric` = {metric}: `{arm.name}` reports {words}")
        if data is not None and metric.startswith("val/") and not isinstance(data.target, Classes):
            own = [one.name for one in data.target.reported() if one.name.startswith("val/")]
            if metric not in own:
                words = f"there is no `{metric}`. Use one of: {', '.join(own)}"
                raise ValueError(f"`metric`: for the target `{data.target.kind}` {words}")

    def _check_arm(self, arm: Arm, before: Sequence[Arm]) -> None:
        if arm.config.steps != self.steps and not arm.budget_note:
            raise ValueError(
                f"arms['{arm.name}'].config.steps = {arm.config.steps}: other trials spend "
                f"{self.steps}; make them equal, or say why in `budget_note`"
            )
        seeds = self.seeds_of(arm)
        if not seeds or len(set(seeds)) < len(seeds):
            has = f"arms['{arm.name}'].seeds = {list(seeds)}"
            raise ValueError(f"{has}: an arm has at least one seed, and each seed once")
        if self.stop and self.stop.target is not None and not arm.algorithm.keeps_first_trials:
            raise ValueError(
                f"`stop.target` = {self.stop.target:g}: a target needs trials that do not depend "
                f"on later ones, but those of `{arm.name}` (`{arm.algorithm.kind}`) do. Leave out "
                "the arm, or use `stop.hours`"
            )
        if arm.source is None:
            return
        field = "hypers_from" if arm.config.hypers_from else "config_from"
        where = f"arms['{arm.name}'].{field} = '{arm.source}'"
        source = next((one for one in before if one.name == arm.source), None)
        if source is None:
            known = ", ".join(one.name for one in before) or "none"
            raise ValueError(f"{where}: must be an arm before it ({known})")
        if alone := sorted(set(seeds) - set(self.seeds_of(source))):
            raise ValueError(f"{where}: seeds {alone} are not among those of that arm")
        is_same = type(source.config) is type(arm.config)
        if arm.config.config_from and not (source.space and is_same):
            raise ValueError(f"{where}: that arm must have a space and the same method")

    def _check_contrast(self, names: Sequence[str]) -> None:
        compare = self.compare
        strange = {*compare, *self.references} - set(names)
        if strange or len(compare) not in (0, 2) or len(set(compare)) == 1:
            has = f"`compare` = {list(compare)}, `references` = {list(self.references)}"
            raise ValueError(f"{has}: name two arms to compare, and others that bound them")
        if len({self.arm(name).judged_on for name in compare}) > 1:
            raise ValueError(f"`compare` = {list(compare)}: are judged on different examples")
        if self.answer != "difference" and not compare:
            raise ValueError(f"`answer` = {self.answer}: compares two arms; set `compare`")
        if self.answer == "found" and not self.found:
            raise ValueError("`answer` = found: name the hyperparameters in `found`")

    def why_unscored(self, arm: str, row: Row | None) -> str | None:
        score = None if row is None else row.metrics.get(self.metric)
        if score is not None and not math.isfinite(score):
            return f"a score is a finite number, but {self.metric} is {score}."
        # An arm that runs a single trial has nothing to choose, and needs no score.
        if score is None and row is not None and self.arm(arm).trials_per_seed > 1:
            return (
                f"trials of `{arm}` are compared by {self.metric}, but its row after {row.step} "
                f"steps has only {', '.join(sorted(row.metrics))}. Hold out validation data, or "
                "select by another metric."
            )
        return None

    def declared_metrics(self) -> tuple[schema.Metric, ...]:
        """List the metrics that the target and the methods declare, each once."""
        found = list(() if self.data is None else self.data.target.reported())
        for arm in self.arms:
            found += arm.config.declared_metrics()
        return tuple(dict.fromkeys(found))

    def seeds_of(self, arm: Arm) -> tuple[int, ...]:
        return self.seeds if arm.seeds is None else arm.seeds

    @property
    def draws_data(self) -> bool:
        """Whether each seed draws its data, as advised by Bouthillier et al. (2021)."""
        return self.data is not None and self.data.seed is None

    def data_draws(self) -> list[int | None]:
        """The seeds under which the data is drawn, in order; [None] where it is fixed."""
        seeds = (seed for arm in self.arms for seed in self.seeds_of(arm))
        return list(dict.fromkeys(seeds)) if self.draws_data else [None]

    def load_data(self, changes: Mapping[str, Value] = {}, draw: int | None = None) -> Task:
        """Read and split the data of a seed, with changes to its config; `NO_DATA` without data."""
        if self.data is None:
            return NO_DATA
        return (self.data.replaced(changes) if changes else self.data).load(draw)

    def load_variants(self, draw: int | None = None) -> dict[str, Task]:
        """Load every variant of the data of a seed that trials have: `variant_name` -> task."""
        changes = {
            variant_name(one): one for arm in self.arms for one in arm.data_variants() if one
        }
        return {name: self.load_data(one, draw) for name, one in changes.items()}

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that change with whatever could change a result."""
        words = (
            "question", "notes", "figures", "keep_models", "keep_checkpoints", "max_failures",
            "at_once", "compare", "references", "answer", "within", "found",
            "net", "hypers", "interval", "batch_size", "optimiser", "runtime",  # see arms
        )  # fmt: skip
        of_arms = {"__all__": {"max_failures", "at_once"}}
        exclude: Any = {**dict.fromkeys(words, True), "arms": of_arms}
        facts = differing(self, self.model_dump(mode="json", exclude=exclude))
        text = json.dumps(facts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]
