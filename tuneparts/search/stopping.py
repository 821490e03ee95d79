"""When a search, or a replicate of an arm, runs nothing more, though trials are left.

Rules that go by scores and passes of a replicate are applied to its trials in their order and not
in that of arrival: where a replicate stops does not depend on which worker was faster. What had
ended beyond that point no longer counts. Every stop is in the journal, so a resumed search stops
at the same place.
"""

import itertools
import math
import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, SerializeAsAny, field_validator

from tuneparts.config import Config
from tuneparts.journal import Row, TrialId, TrialRecord
from tuneparts.named import Named
from tuneparts.schema import Metric

if TYPE_CHECKING:  # a search holds rules
    from tuneparts.search.spec import Search

HOUR = 3600.0


class StopRule(Named):
    """A rule of one's own: a class in the search file, or in a module beside it.

    Example:
        >>> class ThreeInARow(StopRule):
        ...     def stops(self, scores, metric):
        ...         return len(scores) > 2 and None not in scores[-3:]
        >>> ThreeInARow.stops.__name__
        'stops'
    """

    noun = "a stop rule"
    known: ClassVar = {}

    @abstractmethod
    def stops(self, scores: Sequence[float | None], metric: Metric) -> bool:
        """Whether a replicate stops after these trials.

        Args:
            scores: of all trials so far, in their order; None of one that did not finish.
            metric: what they are scores of.
        """


class Stop(Config):
    """Limits; the first one that is reached stops.

    Those of an arm hold for each of its replicates alone. `hours`, `gpu_hours` and `passes` of a
    search are those of all arms together, and stop all of it; its other limits are those of each
    replicate of every arm that has no `stop` of its own.

    Example:
        >>> Stop(hours=2, target=0.99).goes_by_trials
        True
    """

    hours: float | None = Field(default=None, gt=0)
    """Of a search: by the clock, while it runs. Of an arm: what its trials took, added up."""
    gpu_hours: float | None = Field(default=None, gt=0)
    """What trials took times the GPUs that they reserve, added up."""
    passes: int | None = Field(default=None, gt=0)
    """Of all trials together; the trial that reaches it is the last."""
    target: float | None = None
    """A trial with this selection score, or a better one, is the last."""
    patience: int | None = Field(default=None, gt=0)
    """So many trials in a row without a better score than before are the last."""
    rule: SerializeAsAny[StopRule] | None = None
    """One of one's own."""

    @field_validator("rule", mode="before")
    @classmethod
    def _parse_rule(cls, value: Any) -> Any:
        return StopRule.made_from(value)

    @property
    def goes_by_trials(self) -> bool:
        """Whether it looks at trials in their order, so that a first part of them must be whole."""
        return any(one is not None for one in (self.target, self.patience, self.rule))


@dataclass(frozen=True)
class Verdict:
    """A replicate is to stop."""

    num_trials: int | None
    """How many of its trials count; None for all that have finished by now."""
    message: str


@dataclass
class _Spent:
    """What the trials of a replicate have cost so far."""

    gpus: float
    seconds: dict[TrialId, float] = field(default_factory=dict)
    passes: dict[TrialId, float] = field(default_factory=dict)
    all_seconds: float = 0.0
    all_passes: float = 0.0

    def add(self, row: Row) -> None:
        seconds, passes = row.metrics.get("cost/seconds", 0.0), float(row.step)
        self.all_seconds += seconds - self.seconds.get(row.trial, 0.0)
        self.all_passes += passes - self.passes.get(row.trial, 0.0)
        self.seconds[row.trial], self.passes[row.trial] = seconds, passes


@dataclass
class _Prefix:
    """The first trials of a replicate, as far as all of them have ended."""

    scores: list[float | None] = field(default_factory=list)
    passes: float = 0.0
    best: float | None = None
    best_at: int = 0


class Stopper:
    """Applies the rules of a search to what its journal holds.

    Args:
        search: with its rules.
        metric: what selects.
        rows: all that are known; later ones are added.
    """

    def __init__(self, search: "Search", metric: Metric, rows: Iterable[Row]) -> None:
        self._search = search
        self._metric = metric
        self._begin = time.monotonic()
        self._spent = {
            (arm.name, seed): _Spent(arm.resources.gpus)
            for arm in search.arms
            for seed in search.seeds_of(arm)
        }
        self._prefixes: defaultdict[tuple[str, int], _Prefix] = defaultdict(_Prefix)
        known = list(rows)
        self._before = _busy_seconds(known)
        for row in known:
            self.add(row)

    def add(self, row: Row) -> None:
        """Hear of a row."""
        self._spent[row.trial.arm, row.trial.seed].add(row)

    @property
    def has_no_rules(self) -> bool:
        """Whether nothing will ever be stopped."""
        return self._search.stop is None and all(arm.stop is None for arm in self._search.arms)

    def of_search(self) -> str | None:
        """Why the whole search is to stop now, if it is."""
        stop = self._search.stop
        if stop is None:
            return None
        spent = self._spent.values()
        hours = (self._before + time.monotonic() - self._begin) / HOUR
        gpu_hours = sum(one.all_seconds * one.gpus for one in spent) / HOUR
        passes = sum(one.all_passes for one in spent)
        if stop.hours is not None and hours >= stop.hours:
            return f"the search has run for {stop.hours:g} hours"
        if stop.gpu_hours is not None and gpu_hours >= stop.gpu_hours:
            return f"the search has taken {stop.gpu_hours:g} GPU hours"
        if stop.passes is not None and passes >= stop.passes:
            return f"the search has taken {stop.passes:,} passes"
        return None

    def of_replicate(self, arm: str, seed: int) -> Verdict | None:
        """Why a replicate is to stop now by what its arm may cost, if it is."""
        stop = self._search.arm(arm).stop
        if stop is None:
            return None
        spent = self._spent[arm, seed]
        if stop.hours is not None and spent.all_seconds >= stop.hours * HOUR:
            return Verdict(None, f"its trials have taken {stop.hours:g} hours")
        if stop.gpu_hours is not None and spent.all_seconds * spent.gpus >= stop.gpu_hours * HOUR:
            return Verdict(None, f"its trials have taken {stop.gpu_hours:g} GPU hours")
        return None

    def after_trials(
        self, arm: str, seed: int, trials: "dict[TrialId, TrialRecord]"
    ) -> Verdict | None:
        """Why a replicate is to stop by its first trials, if it is; each trial is judged once."""
        stop = self._search.stop_of(arm)
        if stop is None:
            return None
        prefix = self._prefixes[arm, seed]
        for index in itertools.count(len(prefix.scores)):
            record = trials.get(TrialId(arm, seed, index))
            if record is None or record.end is None:
                return None
            self._extend(prefix, record)
            message = self._message(stop, prefix, is_own=self._search.arm(arm).stop is not None)
            if message is not None:
                return Verdict(index + 1, message)
        return None

    def _extend(self, prefix: _Prefix, record: TrialRecord) -> None:
        last = record.last
        is_finished = record.end is not None and record.end.outcome == "finished"
        score = None if last is None else last.metrics.get(self._metric.name)
        score = score if is_finished and score is not None and math.isfinite(score) else None
        if score is not None and (prefix.best is None or self._metric.better(score, prefix.best)):
            prefix.best, prefix.best_at = score, len(prefix.scores)
        prefix.scores.append(score)
        prefix.passes += 0 if last is None else last.step

    def _message(self, stop: Stop, prefix: _Prefix, *, is_own: bool) -> str | None:
        metric, number = self._metric, len(prefix.scores)
        target, best = stop.target, prefix.best
        if target is not None and best is not None and not metric.better(target, best):
            return f"trial {prefix.best_at} has reached {metric.name} {target:g}"
        if stop.patience is not None and number - prefix.best_at > stop.patience:
            return f"{stop.patience} trials in a row were no better than those before"
        if is_own and stop.passes is not None and prefix.passes >= stop.passes:
            return f"its trials have taken {stop.passes:,} passes"
        if stop.rule is not None and stop.rule.stops(tuple(prefix.scores), metric):
            return f"`{stop.rule.kind}` says so after {number} trials"
        return None


def _busy_seconds(rows: Sequence[Row]) -> float:
    """Seconds by the clock in which some trial ran; the time between two drivers is left out."""
    before: dict[TrialId, float] = {}
    spans = []
    for row in sorted(rows, key=lambda one: (one.trial, one.step)):
        seconds = row.metrics.get("cost/seconds", 0.0)
        spans.append((row.time - max(0.0, seconds - before.get(row.trial, 0.0)), row.time))
        before[row.trial] = seconds
    total, reach = 0.0, -math.inf
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reach))
        reach = max(reach, end)
    return total
