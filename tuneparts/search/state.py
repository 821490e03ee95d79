"""What the events of a search add up to: the one place where they are interpreted.

The plan, limits, the live view, MLflow and data frames all read a `RunState`.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tuneparts.core.errors import DataError
from tuneparts.search import events
from tuneparts.search.events import Event, ResultTold, Row, TrialEnded, TrialEvent, TrialId

Status: TypeAlias = Literal["unknown", "queued", "running"] | events.Outcome
"""Of a trial: `unknown` without a config, `queued` until a worker has it, also for a second try."""


@dataclass
class TrialRecord:
    """All that the journal knows of one trial."""

    starts: dict[int, events.TrialStarted] = field(default_factory=dict)
    """Steps -> the config that the trial has from there on."""
    queued: float | None = None
    """When the first config was given."""
    running: float | None = None
    """When a worker took it up."""
    rows: dict[int, Row] = field(default_factory=dict)
    last: Row | None = None
    """The row with the most steps."""
    latest: dict[str, float] = field(default_factory=dict)
    """The newest value of each metric; not every row has all (test scores come at the end)."""
    failed_rounds: dict[int, str] = field(default_factory=dict)
    """Steps at which a round began that failed -> why."""
    told: set[int] = field(default_factory=set)
    """Steps at which the algorithm got a result, where the journal says so."""
    end: TrialEnded | None = None
    worked_until: float | None = None
    """When it ended; unlike the time in `end`, that of a trial that was voided later stays."""
    is_retried: bool = False
    """Whether it failed, is to be tried again, and no worker is known to have it since."""
    _first_report: float | None = None

    def add(self, event: TrialEvent, *, keep_rows: bool = True) -> bool:
        """Take an event of this trial; returns whether it was news."""
        if isinstance(event, events.TrialStarted):
            return self._add_start(event)
        if self._knows(event):
            return False
        if self._first_report is None and isinstance(event, Row | TrialEnded | events.TrialVoided):
            self._first_report = event.time
        if isinstance(event, events.TrialRunning):
            self.running, self.is_retried = event.time, False
        elif isinstance(event, Row):
            self._add_row(event, keep_rows=keep_rows)
        elif isinstance(event, events._RoundFailed):
            self.failed_rounds[event.steps] = event.message
        elif isinstance(event, ResultTold):
            self.told.add(event.steps)
        elif isinstance(event, events.TrialRetried):
            self.end, self.worked_until, self.is_retried = None, None, True
            self._first_report = self._first_report if self.rows else None
            newest = max(self.failed_rounds, default=-1)
            if newest >= max(self.starts, default=0):  # else the trial went on as a copy
                self.failed_rounds.pop(newest, None)
        else:
            self._add_end(event)
        return True

    def _knows(self, event: TrialEvent) -> bool:
        """Whether an event is no news, or cannot be."""
        if isinstance(event, events.TrialRunning):
            return self.running is not None
        if isinstance(event, Row):
            return event.step in self.rows
        if isinstance(event, events._RoundFailed):
            return event.steps in self.failed_rounds
        if isinstance(event, ResultTold):
            return event.steps in self.told
        outcome = None if self.end is None else self.end.outcome
        if isinstance(event, events.TrialRetried):
            return outcome != "failed"
        return (
            outcome == "stopped" if isinstance(event, events.TrialVoided) else outcome is not None
        )

    def _add_start(self, event: events.TrialStarted) -> bool:
        """A config is news where another one was in force, also if the trial had it before."""
        steps = event.steps
        before = self.starts.get(max((p for p in self.starts if p <= steps), default=-1))
        is_copy = event.donor is not None and steps not in self.starts
        if before is not None and before.config == event.config and not is_copy:
            return False
        self.starts[steps] = event
        self.queued = event.time if self.queued is None else self.queued
        return True

    def _add_row(self, event: Row, *, keep_rows: bool) -> None:
        is_newest = self.last is None or event.step > self.last.step
        self.latest |= event.metrics if is_newest else {**event.metrics, **self.latest}
        if not keep_rows:
            self.rows.clear()
        self.rows[event.step] = event
        self.last = event if is_newest else self.last
        self.is_retried = False

    def _add_end(self, event: TrialEnded | events.TrialVoided) -> None:
        if isinstance(event, events.TrialVoided):
            event = TrialEnded(event.trial, "stopped", event.time, event.message)
        self.end = event
        self.worked_until = event.time if self.worked_until is None else self.worked_until

    @property
    def start(self) -> float | None:
        """When its work began; None while it waits for a worker."""
        if self.running is not None or self._first_report is None:
            return self.running
        return self._first_report if self.queued is None else self.queued

    @property
    def status(self) -> Status:
        if self.end is not None:
            return self.end.outcome
        if self.start is None or self.is_retried:
            return "queued" if self.starts else "unknown"
        return "running"

    @property
    def config(self) -> Mapping[str, Any]:
        if not self.starts:
            raise DataError("every trial of a journal has a config, but one has none.")
        return self.starts[max(self.starts)].config

    @property
    def configs(self) -> list[Mapping[str, Any]]:
        """All configs that it had, oldest first; one that came back stands there again."""
        return [self.starts[steps].config for steps in sorted(self.starts)]

    def at(self, steps: int) -> Row | None:
        """The first row with at least so many steps."""
        later = [step for step in self.rows if step >= steps]
        return self.rows[min(later)] if later else None


class RunState:
    """The state of a search, folded from its events; if asked, only with the newest row."""

    def __init__(self, *, keep_rows: bool = True) -> None:
        self.trials: dict[TrialId, TrialRecord] = {}
        self.stops: events.Stops = {}
        self.told: dict[tuple[str, int], list[ResultTold]] = defaultdict(list)
        """Arm and seed -> the order in which its algorithm got results."""
        self.counts: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
        """Arm and seed -> status -> number of its trials."""
        self._replicates: dict[tuple[str, int], dict[TrialId, TrialRecord]] = defaultdict(dict)
        self._keep_rows = keep_rows

    @classmethod
    def read(cls, path: Path) -> "RunState":
        """Fold a journal file, which is left as it is; a run that has just begun has none."""
        state = cls()
        for event in events.read(path) if path.exists() else ():
            state.apply(event)
        return state

    def apply(self, event: Event) -> bool:
        """Take one event; returns whether it was news."""
        key = event.trial.arm, event.trial.seed
        if isinstance(event, events.ReplicateStopped):
            return self.stops.setdefault(key, event) is event
        record = self.trials.setdefault(event.trial, TrialRecord())
        before, counts = record.status, self.counts[key]
        if event.trial not in self._replicates[key]:
            self._replicates[key][event.trial] = record
            counts[before] += 1
        if not record.add(event, keep_rows=self._keep_rows):
            return False
        counts[before] -= 1
        counts[record.status] += 1
        if isinstance(event, ResultTold):
            self.told[key].append(event)
        return True

    def replicate(self, arm: str, seed: int) -> Mapping[TrialId, TrialRecord]:
        """The trials of one seed of an arm, in the order in which the journal names them first."""
        return self._replicates.get((arm, seed), {})
