"""One trial on its way from the journal to MLflow: what waits, and how it is sent."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tuneparts.core import schema
from tuneparts.core.errors import UnknownNameError
from tuneparts.search.frames import flat
from tuneparts.search.journal import (
    Event,
    Row,
    TrialEnded,
    TrialId,
    TrialRetried,
    TrialRunning,
    TrialStarted,
    TrialVoided,
)
from tuneparts.tracking import store
from tuneparts.tracking.card import DataFacts, flatten
from tuneparts.tracking.record import Status

STATUS: dict[str, Status] = {"finished": "FINISHED", "stopped": "FINISHED", "failed": "FAILED"}
"""MLflow's status of a run by the outcome of its trial; KILLED ones may go on."""
LOG = "log.txt"
"""The artifact of a failed trial: the last lines that it printed, and its traceback."""
_LONGEST_ERROR = 4000
_MOST_PARAMS = 100
_MOST_ENTRIES = 1000
"""What MLflow takes in one batch."""


@dataclass
class TrialRun:
    """The MLflow run of one trial, and what the journal says that it still lacks."""

    trial: TrialId
    start: float | None = None
    """When its work began. MLflow takes the start of a run at its creation and never again, so
    there is no run before."""
    queued: float | None = None
    """When the trial got its config."""
    run_id: str | None = None
    """None until the run is known to exist in the store."""
    may_exist: bool = False
    """Whether the store may have a run that we do not know of: its answer got lost."""
    was_killed: bool = False
    """Whether the store says KILLED, from a process that was interrupted."""
    is_complete: bool = False
    """Whether the store has everything; later events change nothing."""
    outcome: str = "queued"
    has_params: bool = False
    has_data: bool = False
    """Whether the data set is logged as an input."""
    old_metrics: set[str] = field(default_factory=set)
    """Metrics that a former process logged, and whose steps in the store we do not know yet."""
    stored: set[tuple[str, int]] = field(default_factory=set)
    """Metrics and steps that a former process logged."""
    config: dict[str, Any] = field(default_factory=dict)
    """The newest config, flat."""
    changed: set[str] = field(default_factory=set)
    """Paths of the config that have changed."""
    step: int = 0
    """The newest step."""
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    points: list[tuple[str, float, int, int]] = field(default_factory=list)
    """Metric, value, milliseconds since 1970 and step, as `mlflow.entities.Metric` takes them."""
    end: tuple[Status, float] | None = None
    ended: float | None = None
    """When it ended, also after the store has been told."""

    def fold(self, event: Event, problems: store.Problems, *, is_open: bool = False) -> None:
        """Add what an event says.

        Args:
            event: Of this trial.
            problems: Gets the metrics that the schema does not list.
            is_open: Take these metrics too, and show how configs change.
        """
        if isinstance(event, TrialRetried):
            self._reopen()
        elif isinstance(event, TrialVoided) and self.start is not None:
            self._void(event)
        if self.is_complete:
            return
        if isinstance(event, TrialStarted):
            self.queued = event.time if self.queued is None else self.queued
            if not self.has_params:
                self.params = flatten(event.config)
                self.has_params = True
            elif is_open:
                self._add_changes(event)
            self.config = flat(event.config)
        elif isinstance(event, TrialRunning):
            self.begin(event.time)
        elif isinstance(event, Row):
            self._begin_unsaid(event.time)
            self.step = max(self.step, event.step)
            for name, value in event.metrics.items():
                if not is_open and schema.find(name) is None:
                    why = str(UnknownNameError("metric", name, schema.METRICS))
                    problems.add(f"metric `{name}` is not in the schema", why)
                    continue
                point = (name, float(value), milliseconds(event.time), event.step)
                self.points.append(point)
        elif isinstance(event, TrialEnded):
            self._begin_unsaid(event.time)
            self.end = STATUS[event.outcome], event.time
            self.ended = event.time
            self.outcome = event.outcome
            self.tags["outcome"] = event.outcome
            if event.message:
                self.tags["error"] = event.message[:_LONGEST_ERROR]

    def _reopen(self) -> None:
        """Take back the end of a trial that had failed and is tried again."""
        self.is_complete, self.end, self.outcome = False, None, "running"
        self.was_killed = True  # so that the store is told that it runs again
        self.tags |= {"outcome": "running", "error": ""}

    def _void(self, event: TrialVoided) -> None:
        """Say that what it found no longer counts; when it ended stays as it was."""
        self.is_complete, self.outcome = False, "stopped"
        self.end = STATUS["stopped"], self.ended or event.time
        self.tags |= {"outcome": "stopped", "error": event.message[:_LONGEST_ERROR]}

    def _add_changes(self, event: TrialStarted) -> None:
        """Show numbers of the config that change as metrics: MLflow refuses a changed param."""
        for path, value in flat(event.config).items():
            before = self.config.get(path)
            if before != value and isinstance(value, int | float) and not isinstance(value, bool):
                name, at = f"config/{path}", milliseconds(event.time)
                if isinstance(before, int | float) and path not in self.changed:
                    self.points.append((name, before, milliseconds(self.start or event.time), 0))
                self.points.append((name, float(value), at, self.step))
                self.changed.add(path)

    def recall(self, event: Event) -> None:
        """Take in what a former process has sent, as far as later events build on it."""
        if isinstance(event, TrialStarted):
            if self.run_id is None:
                self.queued = event.time if self.queued is None else self.queued
            if not self.has_params and not self.is_complete:
                self.params = flatten(event.config)
                self.has_params = True
            values = flat(event.config)
            known = self.config or values
            self.changed |= {path for path in values if values[path] != known.get(path)}
            self.config = values
        elif isinstance(event, Row):
            self.step = max(self.step, event.step)

    def begin(self, time: float) -> None:
        """Say that its work began, unless that is known."""
        if self.start is None:
            self.start = time
            self.outcome = "running"

    def _begin_unsaid(self, time: float) -> None:
        """Say that it began before this event; older journals know only when it was queued."""
        self.begin(time if self.queued is None else self.queued)

    def kill(self, time: float) -> None:
        """End it if it has begun and not ended."""
        if self.start is not None and self.end is None and not self.is_complete:
            self.end = "KILLED", time
            self.outcome = "killed"

    def complete(self) -> None:
        """Forget what waits: the store has it all, or will never take it."""
        self.is_complete = True
        self.end = None
        for kept in (self.old_metrics, self.stored, self.config, self.params, self.tags):
            kept.clear()
        self.points.clear()

    def send(
        self, calls: store.Calls, data: DataFacts | None, read_log: Callable[[TrialId], str]
    ) -> None:
        """Send what waits to the run, and end it if the trial has ended.

        Args:
            calls: To the store.
            data: The data set, an input of the run.
            read_log: Gives the log of the trial; one that failed gets it as an artifact.
        """
        client, run_id = calls.client, str(self.run_id)
        if self.was_killed and self.end is None:
            calls.make(lambda: client.update_run(run_id, status="RUNNING"))
            self.was_killed = False
        if not self.has_data and data is not None:
            calls.make(lambda: client.log_inputs(run_id, datasets=[data.as_input()]))
            self.has_data = True
        self._drop_stored(calls)
        self._send_entries(calls)
        if self.outcome == "failed":
            self._send_log(calls, read_log)
        if self.end is not None:
            status, end = self.end[0], milliseconds(self.end[1])
            calls.make(lambda: client.set_terminated(run_id, status, end_time=end))
            self.complete()

    def _send_log(self, calls: store.Calls, read_log: Callable[[TrialId], str]) -> None:
        try:
            text = read_log(self.trial)
        except Exception as error:  # a log that cannot be read must not keep the rest waiting
            calls.problems.add("log not read", f"{self.trial}: {error}")
            return
        if text:
            calls.make(lambda: calls.client.log_text(str(self.run_id), text, LOG))

    def _drop_stored(self, calls: store.Calls) -> None:
        """Leave out points whose step a former process has sent, perhaps with another time."""
        run_id = str(self.run_id)
        names = self.old_metrics.intersection(point[0] for point in self.points)
        if names:
            found = calls.make(lambda: store.points(calls.client, {run_id: names}))
            self.stored.update((name, step) for _, name, step, _, _ in found or ())
            self.old_metrics -= names
        if self.stored:
            self.points = [
                point for point in self.points if (point[0], point[3]) not in self.stored
            ]

    def _send_entries(self, calls: store.Calls) -> None:
        """Send params first, then points, in as few batches as MLflow allows."""
        from mlflow.entities import Metric, Param, RunTag

        while self.params or self.tags or self.points:
            params = dict(list(self.params.items())[:_MOST_PARAMS])
            few = [*(Param(*pair) for pair in params.items())]
            few += [RunTag(*pair) for pair in self.tags.items()]
            points = self.points[: _MOST_ENTRIES - len(few)]
            calls.log(str(self.run_id), [*few, *(Metric(*point) for point in points)])
            for key in params:
                del self.params[key]
            self.tags.clear()
            del self.points[: len(points)]
            calls.points += len(points)


def milliseconds(seconds: float) -> int:
    """MLflow's unit of time."""
    return round(1000 * seconds)
