"""One trial between the journal and the store: what waits to be sent."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tuneparts import schema
from tuneparts.errors import UnknownNameError
from tuneparts.journal import Event, Row, TrialEnded, TrialId, TrialStarted
from tuneparts.tracking.params import flatten
from tuneparts.tracking.problems import Problems

Status: TypeAlias = Literal["FINISHED", "FAILED", "KILLED"]
Point: TypeAlias = tuple[str, float, int, int]
"""Metric, value, milliseconds since 1970, step."""

_STATUS: dict[str, Status] = {"finished": "FINISHED", "stopped": "FINISHED", "failed": "FAILED"}
_LONGEST_ERROR = 4000


@dataclass
class PendingRun:
    """The run of one trial; everything in it is still to be sent, save what says otherwise."""

    trial: TrialId
    start: float
    run_id: str | None = None
    """None until the run is known to exist in the store."""
    was_killed: bool = False
    """Whether the store says KILLED, from a process that was interrupted."""
    is_complete: bool = False
    """Whether the store has everything; later events change nothing."""
    stored: set[tuple[str, int]] = field(default_factory=set)
    """Metrics and steps that a former process has sent."""
    outcome: str = "running"
    has_config: bool = False
    has_data: bool = False
    """Whether the data set is logged as an input."""
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    end: tuple[Status, float] | None = None

    def fold(self, event: Event, problems: Problems) -> None:
        """Add what an event says; metrics that the schema does not list are problems."""
        if self.is_complete:
            return
        if isinstance(event, TrialStarted):
            # MLflow refuses a changed param; what a population perturbs is reported as hyper/*.
            if not self.has_config:
                self.params = flatten(event.config)
                self.has_config = True
        elif isinstance(event, Row):
            self._fold_row(event, problems)
        elif isinstance(event, TrialEnded):
            self.end = _STATUS[event.outcome], event.time
            self.outcome = event.outcome
            self.tags["outcome"] = event.outcome
            if event.message:
                self.tags["error"] = event.message[:_LONGEST_ERROR]

    def kill(self, time: float) -> None:
        """End it unless it has ended."""
        if self.end is None and not self.is_complete:
            self.end = "KILLED", time
            self.outcome = "killed"

    def complete(self) -> None:
        """The store has it all, or will never take it: forget what waits."""
        self.is_complete = True
        self.end = None
        self.stored.clear()
        self.params.clear()
        self.tags.clear()
        self.points.clear()

    def _fold_row(self, row: Row, problems: Problems) -> None:
        time = milliseconds(row.time)
        for name, value in row.metrics.items():
            try:
                schema.lookup(name)
            except UnknownNameError as error:
                problems.add(f"metric `{name}` is not in the schema", str(error))
            else:
                self.points.append((name, float(value), time, row.step))


def milliseconds(seconds: float) -> int:
    """MLflow's unit of time."""
    return round(1000 * seconds)
