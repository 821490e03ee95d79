"""What a run is, besides its numbers: question, arms, budgets, provenance, in words.

`RunCard` is made once from a run; reports, MLflow and exports read it, as `metadata.json`.
"""

import inspect
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter

from tuneparts.core import atomic, redaction, schema
from tuneparts.core.errors import ConfigError, DataError, UnknownNameError
from tuneparts.core.selection import Best, Selection
from tuneparts.search import data_record
from tuneparts.search.events import Stops, decode
from tuneparts.search.frames import flat
from tuneparts.search.state import RunState

if TYPE_CHECKING:
    from tuneparts.search.arm import Arm
    from tuneparts.search.runs import Run
    from tuneparts.search.space import Dimension
    from tuneparts.search.spec import Search

UNTIL_DECIDED = "added until decided:"
"""What the history of a run says where seeds were added by a stopping rule, before `a:b`."""
_FEWEST_TRIALS = 4
"""Trials of a seed from which on figures of the space say something."""
_MOST_DIFFERENCES = 4
"""Fields that are named where two arms of one method differ; the rest are counted."""
_GENERAL = ("steps", "interval")


@dataclass(frozen=True)
class ArmCard:
    """One arm; it runs all its trials under each of its seeds."""

    name: str
    method: str
    trials_per_seed: int
    seeds: tuple[int, ...]
    source: str | None = None
    """The arm whose findings this one starts from; its cost is part of this arm's answer."""
    steps: int = 0
    """Budget of one trial; 0 where it varies."""
    is_adaptive: bool = False
    """Whether its trials depend on each other, so that no subset of them is a smaller search."""
    is_asynchronous: bool = False
    """Whether its trials also depend on which of them ended first, so that a rerun may differ."""
    budget_note: str = ""
    """Why the budget differs from that of the other arms, where it does."""
    is_tuning: bool = False
    """Whether it only finds the config that another arm trains at under a fresh seed."""
    what: str = ""
    space: str = ""
    """What its trials draw, and from where; empty where they draw nothing."""
    judged_on: str = ""
    """What its validation and test data has other than that of the search; arms that differ here
    are not compared."""

    @property
    def num_expected(self) -> int:
        return self.trials_per_seed * len(self.seeds)


@dataclass(frozen=True)
class _StopCard:
    """A seed of an arm that ran nothing more though trials were left, and why."""

    arm: str
    seed: int
    message: str
    is_all: bool = False
    """Whether the whole search was stopped."""


@dataclass(frozen=True)
class RunCard:
    """A search as its report describes it; the fields are those of `metadata.json`, in order."""

    name: str
    question: str = ""
    arms: tuple[ArmCard, ...] = ()
    metric: str = ""
    """Selection metric; may be empty when no arm has anything to select."""
    quantity: str = "accuracy"
    """What the answer, and figures that say nothing else, are about: `test/accuracy`, ..."""
    objectives: tuple[str, ...] = ()
    selection: Mapping[str, Any] = field(default_factory=dict)
    """The rule that selects, as JSON; the best by the metric where it is empty."""
    data_draws: Literal["", "fixed", "drawn"] = ""
    """Whether each seed draws its data; empty where nothing is learnt from data."""
    compare: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    answer: str = "difference"
    within: float | None = None
    found: Mapping[str, float | None] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    """The machine, in words."""
    notes: str = ""
    scale: str = ""
    figures: tuple[str, ...] = ()
    """Requests of `figures.gallery`, in the order of the page."""
    digest: str = ""
    commit: str = ""
    parent_run_id: str = ""
    command: str = ""
    ui_command: str = "tuneparts ui"
    versions: Mapping[str, str] = field(default_factory=dict)
    history: tuple[str, ...] = ()
    """How the run was extended since it began: when, by what, at whose command."""
    stops: tuple[_StopCard, ...] = ()
    """What was stopped; trials that had not started then are counted as such."""
    truth: Mapping[str, float] = field(default_factory=dict)
    """True values of hyperparameters, by their metric, where the data was made with them."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What else a reader asks for, in words: data, net, start, machine."""
    metrics: tuple[schema.Metric, ...] = ()
    """What the methods of the search declared, for readers who do not have the methods."""

    @property
    def replication(self) -> str:
        """What differs between seeds, in a sentence; empty where there is no data."""
        return {
            "": "",
            "drawn": "Each seed draws its data anew, for all arms the same.",
            "fixed": "All seeds share one fixed draw of the data, so intervals say nothing "
            "about other data.",
        }[self.data_draws]

    @property
    def until_decided(self) -> tuple[tuple[str, str], ...]:
        """Pairs of arms to which seeds were added until they were decided."""
        told = [one.partition(UNTIL_DECIDED)[2] for one in self.history if UNTIL_DECIDED in one]
        pairs = [words.split()[0].rstrip(";").partition(":") for words in told]
        return tuple(dict.fromkeys((one, other) for one, _, other in pairs))

    @property
    def rule(self) -> Selection:
        return Selection.made_from(self.selection) if self.selection else Best()

    @property
    def weighed(self) -> tuple[schema.Metric, ...]:
        """The objectives; the selection metric alone where there is one."""
        return tuple(map(schema.lookup, self.objectives or (self.metric,)))

    def arm(self, name: str) -> ArmCard:
        arms = {arm.name: arm for arm in self.arms}
        if name not in arms:
            raise UnknownNameError("arm", name, arms)
        return arms[name]

    def sources(self, name: str) -> tuple[str, ...]:
        """The arms that this one rests on, nearest first."""
        chain: list[str] = []
        while (source := self.arm([name, *chain][-1]).source) is not None:
            if source in chain:
                raise ConfigError(f"arms['{name}'].source: leads back to an arm before it.")
            chain.append(source)
        return tuple(chain)

    @classmethod
    def of(cls, run: "Run", parent_run_id: str = "", stopped: Stops | None = None) -> "RunCard":
        """Describe a run; secrets are masked. Its journal is read for `stopped` if that is None."""
        facts, search, masked = run.card, run.search, redaction.of_process().text
        data, record = search.data, data_record.read(run.folder)
        stopped = _stops(run.folder / "journal.jsonl") if stopped is None else stopped
        rule = search.selection.model_dump(mode="json")
        machine = str(facts.get("machine") or "")
        replicates = sorted({len(search.seeds_of(arm)) for arm in search.arms})
        in_words = {
            "data": _data(search, record),
            "net": _nets(search),
            "seeds": " or ".join(map(str, replicates)),
            "started": time.strftime("%d %B %Y, %H:%M UTC", time.gmtime(run.created)).lstrip("0"),
            "machine": machine,
        }
        # Draws of a whole official set are all the same.
        draws = list((record or {}).get("draws", {}).values())
        is_fixed = not search.draws_data or (len(draws) > 1 and all(d == draws[0] for d in draws))
        figures = [*search.figures, *(name for arm in search.arms for name in arm.config.figures)]
        if any(arm.trials_per_seed >= _FEWEST_TRIALS and arm.space for arm in search.arms):
            figures += ["parallel", "importance", "slices"]
        figures += ["pareto"] if search.objectives else []
        copied = ("name", "metric", "objectives", "compare", "references", "answer", "within")
        return cls(
            **{name: getattr(search, name) for name in (*copied, "found")},
            **{name: facts[name] for name in ("digest", "commit", "command", "versions")},
            question=masked(search.question),
            notes=masked(search.notes),
            scale=str(search.scale),
            selection={} if rule == {"kind": "best"} else rule,
            quantity="accuracy" if data is None else data.target.metrics[0].name,
            data_draws="" if data is None else "fixed" if is_fixed else "drawn",
            environment={"machine": masked(machine)} if machine else {},
            figures=tuple(dict.fromkeys(figures)),
            truth={} if data is None else data.truth,
            facts={name: masked(text) for name, text in in_words.items() if text},
            stops=tuple(
                _StopCard(arm, seed, stop.message, stop.is_all)
                for (arm, seed), stop in sorted(stopped.items())
            ),
            history=tuple(
                f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime(step['time']))}: "
                f"{'; '.join(step['news'])} ({step['command']}, commit {step['commit']})"
                for step in facts.get("history", [])
            ),
            parent_run_id=parent_run_id,
            metrics=tuple(m for m in search.declared_metrics() if m.name not in schema.BUILT_IN),
            arms=tuple(
                ArmCard(
                    name=arm.name,
                    method=arm.config.model_dump()["method"],
                    trials_per_seed=arm.trials_per_seed,
                    seeds=search.seeds_of(arm),
                    source=arm.source,
                    is_adaptive=arm.algorithm.is_adaptive,
                    is_asynchronous=arm.algorithm.is_asynchronous,
                    steps=arm.config.steps,
                    budget_note=masked(arm.budget_note),
                    judged_on=masked(arm.judged_on),
                    is_tuning=arm.name in {one.config.config_from for one in search.arms},
                    what=masked(_what(search, arm)),
                    space=masked(_space(arm.space)),
                )
                for arm in search.arms
            ),
        )

    def to_json(self) -> str:
        """Return indented JSON text, with the fields in the order of the class."""
        tree = asdict(self)
        for metric in tree["metrics"]:
            metric["direction"] = metric["direction"].name
        return json.dumps(tree, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "RunCard":
        """Read what `to_json` wrote, and declare the metrics of the search in this process."""
        try:
            tree: dict[str, Any] = json.loads(text)
            for metric in tree["metrics"]:
                metric["direction"] = schema.Direction[metric["direction"]]
            found = _ADAPTER.validate_python(tree)
            for arm in found.arms:
                found.sources(arm.name)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(f"this does not describe a search: {error!s:.300}") from None
        schema.declare(*found.metrics)
        return found


_ADAPTER = TypeAdapter(RunCard)


def _stops(path: Path) -> Stops:
    """How seeds were stopped; the other lines of the file are not even parsed."""
    state = RunState()
    if path.exists():
        with atomic.inside(path.parent, path).open(encoding="utf-8") as lines:
            for line in lines:
                if line.startswith('{"kind": "stop"') and line.endswith("\n"):
                    event = decode(line)
                    assert event is not None
                    state.apply(event)
    return state.stops


def _what(search: "Search", own: "Arm") -> str:
    """What an arm is: its method, its algorithm, and how it differs from the first such arm."""
    parts = [_sentence(own.config) or f"The method `{own.config.model_dump()['method']}`."]
    if own.source is not None:
        parts.append(f"Trained at the hyperparameters that `{own.source}` found.")
    if own.trials_per_seed > 1:
        fields = own.algorithm.model_dump(mode="json", exclude_defaults=True)
        # What of Optuna it is is said also where it is the usual one.
        optuna = {"sampler", "pruner"} & set(type(own.algorithm).model_fields)
        fields = {name: getattr(own.algorithm, name) for name in optuna} | fields
        settings = _listed(fields, but=("kind", "num_trials"))
        parts.append(_sentence(own.algorithm) or f"The algorithm `{own.algorithm.kind}`.")
        parts.append(f"({settings})" if settings else "")

    def kind(arm: "Arm") -> tuple[type, type, bool]:
        return type(arm.config), type(arm.algorithm), arm.source is None

    like = next(one for one in search.arms if kind(one) == kind(own))
    if like.name != own.name:
        parts.append(_difference(own, like))
    return " ".join(filter(None, parts))


def _difference(own: "Arm", like: "Arm") -> str:
    if own.source is not None and own.source != like.source:
        return ""  # its source says it
    fields, others = (flat(one.config.model_dump(mode="json")) for one in (own, like))
    found: list[str] = []
    parts: dict[str, list[str]] = {}
    for path, value in fields.items():
        if path in own.space or others.get(path) == value or path in _GENERAL:
            continue
        words = path.split(".")
        above = (".".join(words[:end]) for end in range(1, len(words)))
        whole = next((part for part in above if part in others), None)
        if whole is None:
            found.append(f"`{path}` {_value(value)}")
        elif value:  # a part that the other arm does not have
            parts.setdefault(whole, []).append(f"{path[len(whole) + 1 :]} {_value(value)}")
    for whole, values in parts.items():
        found.append(f"`{whole}` ({', '.join(values[:_MOST_DIFFERENCES])})")
    if not found:
        return ""
    more = len(found) - _MOST_DIFFERENCES
    rest = f" and {more} more" if more > 0 else ""
    return f"As `{like.name}`, but with {', '.join(found[:_MOST_DIFFERENCES])}{rest}."


def _space(dimensions: Mapping[str, "Dimension"]) -> str:
    """The dimensions of a space with where their values come from; equal ones together."""
    names: dict[str, list[str]] = {}
    for path, dimension in dimensions.items():
        short = path.rpartition(".")[2]
        metric = schema.find(f"hyper/{short}")
        unit = f" ({metric.unit})" if metric is not None and metric.unit else ""
        names.setdefault(_range(dimension), []).append(short + unit)
    return "; ".join(f"{', '.join(paths)}: {words}" for words, paths in names.items())


def _range(dimension: "Dimension") -> str:
    fields = dimension.model_dump(mode="json", exclude_none=True)
    if {"low", "high"} <= set(fields) and "mean" not in fields:
        words = f"{_value(fields['low'])} to {_value(fields['high'])}"
        words += f" in steps of {_value(fields['step'])}" if fields.get("step", 1) != 1 else ""
        return words + (", evenly in the logarithm" if dimension.is_log else "")
    values = dimension.grid()
    if values is not None and len(values) <= 2 * _MOST_DIFFERENCES:
        return " or ".join(_value(dimension.shown(value)) for value in values)
    return f"{fields.get('kind', type(dimension).__name__)} ({_listed(fields, but=('kind',))})"


def _nets(search: "Search") -> str:
    found: dict[str, None] = {}
    for config in (getattr(arm.config, "net", None) for arm in search.arms):
        if config is not None:
            own = _listed(config.model_dump(mode="json", exclude_defaults=True), but=("name",))
            name = str(getattr(config, "name", type(config).__name__))
            found[f"{name} ({own})" if own else name] = None
    return "; ".join(found)


def _data(search: "Search", record: Mapping[str, Any] | None) -> str:
    """The data set, its variant, and how many examples each part has, by its `data_record`."""
    if search.data is None:
        return ""
    skipped = {"name", "seed", "root", "num_train", "num_val", "num_test", "target"}
    varied = search.data.model_dump(mode="json", exclude_defaults=True, exclude=skipped)
    variant = [k if v is True else f"{k} {_value(v)}" for k, v in varied.items()]
    words = ", ".join([search.data.name, *variant])
    if record is None:
        return words
    parts = {"num_train": "training", "num_val": "validation", "num_test": "test"}
    counts = ", ".join(f"{record[part]:,} {what}" for part, what in parts.items())
    shape = " x ".join(map(str, record["in_shape"]))
    return f"{words}; {counts} examples of {shape} numbers"


def _sentence(thing: Any) -> str:
    """The first paragraph of the docstring of an object's class, if it has one of its own."""
    own = type(thing).__dict__.get("__doc__")
    return "" if own is None else inspect.cleandoc(own).partition("\n\n")[0].replace("\n", " ")


def _listed(fields: Mapping[str, Any], but: tuple[str, ...] = ()) -> str:
    return ", ".join(f"{name} {_value(v)}" for name, v in fields.items() if name not in but)


def _value(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
