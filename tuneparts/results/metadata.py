"""What a report must know of a search besides its numbers: question, arms, budgets, provenance.

It is made from a `Search`, which was validated; what is read back from a store is checked again.
"""

import functools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter

from tuneparts.core import schema
from tuneparts.core.errors import ConfigError, DataError, UnknownNameError
from tuneparts.core.selection import Best, Selection

UNTIL_DECIDED = "added until decided:"
"""What the history of a run says where replicates were added by a stopping rule, before `a:b`."""


@dataclass(frozen=True)
class ArmMetadata:
    """One arm; each of its seeds is a replicate of the whole arm with all its trials."""

    name: str
    method: str
    trials_per_seed: int
    seeds: tuple[int, ...]
    follows: str | None = None
    """The arm whose findings this one starts from; its cost is part of this arm's answer."""
    passes: int = 0
    """Budget of one trial; 0 where it varies."""
    is_adaptive: bool = False
    """Whether its trials depend on each other, so that no subset of them is a smaller search."""
    is_free: bool = False
    """Whether its trials also depend on which of them ended first, so that a rerun may differ."""
    budget_note: str = ""
    """Why the budget differs from that of the other arms, where it does."""
    is_tuning: bool = False
    """Whether it only finds the config that another arm trains at under a fresh seed."""
    what: str = ""
    """What the arm is, in a sentence or two."""
    space: str = ""
    """What its trials draw, and from where; empty where they draw nothing."""
    judged_on: str = ""
    """What its validation and test data has other than that of the search; arms that differ here
    are not compared."""

    @property
    def competes(self) -> bool:
        """Whether it is a rival, and not only there to tune another arm."""
        return not self.is_tuning

    @property
    def num_expected(self) -> int:
        """How many trials the arm was to run."""
        return self.trials_per_seed * len(self.seeds)


@dataclass(frozen=True)
class StopMetadata:
    """A replicate that ran nothing more though trials were left, and why."""

    arm: str
    seed: int
    message: str
    is_all: bool = False
    """Whether the whole search was stopped."""


@dataclass(frozen=True)
class ReportMetadata:
    """A search as its report describes it; `from_json` reads back what `to_json` writes."""

    name: str
    question: str
    arms: tuple[ArmMetadata, ...]
    metric: str = ""
    """Selection metric; may be empty when no arm has anything to select."""
    quantity: str = "accuracy"
    """What the answer, and figures that say nothing else, are about: `test/accuracy`, ..."""
    objectives: tuple[str, ...] = ()
    """Metrics that are weighed against each other, the selection metric first; or none."""
    selection: Mapping[str, Any] = field(default_factory=dict)
    """The rule that selects, as JSON; the best by the metric where it is empty."""
    data_draws: Literal["", "fixed", "drawn"] = ""
    """Whether every replicate has data of its own; empty where nothing is learnt from data."""
    compare: tuple[str, ...] = ()
    """The two arms whose contrast answers the question, if it has one."""
    references: tuple[str, ...] = ()
    """Arms that bound the others instead of competing, worst first."""
    answer: str = "difference"
    """What is stated of the contrast: difference, equivalent_trials, found."""
    within: float | None = None
    """Margin of equivalence."""
    found: Mapping[str, float | None] = field(default_factory=dict)
    """Hypers that the question is about, with their true values where known."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The machine, in words."""
    notes: str = ""
    """What the paper did and what differs here."""
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
    stops: tuple[StopMetadata, ...] = ()
    """What was stopped; trials that had not started then are counted as such."""
    truth: Mapping[str, float] = field(default_factory=dict)
    """True values of hypers, by the name of their metric, where the data was made with them."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What else a reader asks for, in words: data, net, start, machine."""
    metrics: tuple[schema.Metric, ...] = ()
    """What the methods of the search declared, for readers who do not have the methods."""

    @property
    def replication(self) -> str:
        """What differs between replicates, in a sentence; empty where there is no data."""
        if self.data_draws == "drawn":
            return "Each replicate draws its data anew, for all arms the same."
        if self.data_draws == "fixed":
            return (
                "All replicates share one fixed draw of the data, so intervals say nothing about "
                "other data."
            )
        return ""

    @property
    def until_decided(self) -> tuple[tuple[str, str], ...]:
        """Pairs of arms to which replicates were added until they were decided."""
        told = [one.partition(UNTIL_DECIDED)[2] for one in self.history if UNTIL_DECIDED in one]
        pairs = [words.split()[0].rstrip(";").partition(":") for words in told]
        return tuple(dict.fromkeys((one, other) for one, _, other in pairs))

    @property
    def rule(self) -> Selection:
        """The rule that selects one trial of each replicate."""
        return Selection.made_from(self.selection) if self.selection else Best()

    @property
    def weighed(self) -> tuple[schema.Metric, ...]:
        """The objectives; the selection metric alone where there is one."""
        return tuple(map(schema.lookup, self.objectives or (self.metric,)))

    def arm(self, name: str) -> ArmMetadata:
        """The arm of this name."""
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise UnknownNameError("arm", name, [arm.name for arm in self.arms])

    def leaders(self, name: str) -> tuple[str, ...]:
        """The arms that this one rests on, nearest first."""
        chain: list[str] = []
        leader = self.arm(name).follows
        while leader is not None:
            if leader in chain:
                raise ConfigError(f"arms follow one another in a line, but {name} in a circle.")
            chain.append(leader)
            leader = self.arm(leader).follows
        return tuple(chain)

    def to_json(self) -> str:
        """Return indented JSON text, with the fields in the order of the class."""
        tree = asdict(self)
        for metric in tree["metrics"]:
            metric["direction"] = metric["direction"].name
        return json.dumps(tree, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "ReportMetadata":
        """Read what `to_json` wrote, and declare the metrics of the search in this process.

        Raises:
            DataError: Something else wrote it.
        """
        try:
            tree: dict[str, Any] = json.loads(text)
            for metric in tree["metrics"]:
                metric["direction"] = schema.Direction[metric["direction"]]
            found = _adapter().validate_python(tree)
            for arm in found.arms:
                found.leaders(arm.name)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(f"this does not describe a search: {error!s:.300}") from None
        schema.declare(*found.metrics)
        return found


@functools.cache
def _adapter() -> TypeAdapter[ReportMetadata]:
    return TypeAdapter(ReportMetadata)
