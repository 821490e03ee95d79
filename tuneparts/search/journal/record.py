"""What the events of a search add up to, trial by trial."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuneparts.core.errors import DataError
from tuneparts.search.journal.events import (
    Event,
    ReplicateStopped,
    ResultTold,
    RoundFailed,
    Row,
    Stops,
    TrialEnded,
    TrialEvent,
    TrialId,
    TrialRetried,
    TrialRunning,
    TrialStarted,
    TrialVoided,
)


@dataclass
class TrialRecord:
    """All that the journal knows of one trial."""

    starts: dict[int, TrialStarted] = field(default_factory=dict)
    """Passes -> the config that the trial has from there on."""
    queued: float | None = None
    """When the first config was given."""
    running: float | None = None
    """When a worker took it up."""
    rows: dict[int, Row] = field(default_factory=dict)
    failed_rounds: dict[int, str] = field(default_factory=dict)
    """Passes at which a round began that failed -> why."""
    told: set[int] = field(default_factory=set)
    """Passes at which the algorithm was told a result, where the journal says so."""
    end: TrialEnded | None = None

    def add(self, event: TrialEvent) -> bool:
        """Take an event of this trial; returns whether it was news."""
        if isinstance(event, TrialStarted):
            return self._add_start(event)
        if self._knows(event):
            return False
        if isinstance(event, TrialRunning):
            self.running = event.time
        elif isinstance(event, Row):
            self.rows[event.step] = event
        elif isinstance(event, RoundFailed):
            self.failed_rounds[event.passes] = event.message
        elif isinstance(event, TrialVoided):
            self.end = TrialEnded(event.trial, "stopped", event.time, event.message)
        elif isinstance(event, ResultTold):
            self.told.add(event.passes)
        elif isinstance(event, TrialRetried):
            self.end = None
            newest = max(self.failed_rounds, default=-1)
            if newest >= max(self.starts, default=0):  # else the trial went on as a copy
                self.failed_rounds.pop(newest, None)
        else:
            self.end = event
        return True

    def _knows(self, event: TrialEvent) -> bool:
        """Whether an event is no news, or cannot be."""
        if isinstance(event, TrialRunning):
            return self.running is not None
        if isinstance(event, Row):
            return event.step in self.rows
        if isinstance(event, RoundFailed):
            return event.passes in self.failed_rounds
        if isinstance(event, ResultTold):
            return event.passes in self.told
        outcome = None if self.end is None else self.end.outcome
        if isinstance(event, TrialRetried):
            return outcome != "failed"
        return outcome == "stopped" if isinstance(event, TrialVoided) else outcome is not None

    def _add_start(self, event: TrialStarted) -> bool:
        """A config is news where another one was in force, also if the trial had it before."""
        passes = event.passes
        before = self.starts.get(max((p for p in self.starts if p <= passes), default=-1))
        is_copy = event.donor is not None and passes not in self.starts
        if before is not None and before.config == event.config and not is_copy:
            return False
        self.starts[passes] = event
        self.queued = event.time if self.queued is None else self.queued
        return True

    @property
    def start(self) -> float | None:
        """When its work began; None while it waits for a worker."""
        has_begun = bool(self.rows) or self.end is not None
        return self.queued if self.running is None and has_begun else self.running

    @property
    def config(self) -> Mapping[str, Any]:
        """The newest config.

        Raises:
            DataError: It never got one; the journal lacks a line.
        """
        if not self.starts:
            raise DataError("every trial of a journal has a config, but one has none.")
        return self.starts[max(self.starts)].config

    @property
    def configs(self) -> list[Mapping[str, Any]]:
        """All configs that it had, oldest first; one that came back stands there again."""
        return [self.starts[passes].config for passes in sorted(self.starts)]

    @property
    def last(self) -> Row | None:
        """The row with the most passes."""
        return self.rows[max(self.rows)] if self.rows else None

    def at(self, passes: int) -> Row | None:
        """The first row with at least so many passes."""
        later = [step for step in self.rows if step >= passes]
        return self.rows[min(later)] if later else None


def take(event: Event, trials: dict[TrialId, TrialRecord], stops: Stops) -> bool:
    """Add an event to what is known; returns whether it was news."""
    replicate = event.trial.arm, event.trial.seed
    if isinstance(event, ReplicateStopped):
        return stops.setdefault(replicate, event) is event
    return trials.setdefault(event.trial, TrialRecord()).add(event)
