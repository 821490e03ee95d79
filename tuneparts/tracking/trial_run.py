"""One trial on its way from the journal to MLflow: what waits, and how it is sent."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tuneparts.core import schema
from tuneparts.core.errors import UnknownNameError
from tuneparts.search.events import (
    Event,
    Outcome,
    Row,
    TrialEnded,
    TrialId,
    TrialRetried,
    TrialStarted,
    TrialVoided,
)
from tuneparts.search.frames import flat
from tuneparts.search.state import TrialRecord
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
    record: TrialRecord
    """What the journal says of the trial."""
    run_id: str | None = None
    """None until the run is known to exist in the store."""
    may_exist: bool = False
    """Whether the store may have a run that we do not know of: its answer got lost."""
    was_killed: bool = False
    """Whether the store says KILLED, from a process that was interrupted."""
    is_complete: bool = False
    """Whether the store has everything; later events change nothing."""
    stored_outcome: str | None = None
    """What the store says of a run that is complete there."""
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
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    points: list[tuple[str, float, int, int]] = field(default_factory=list)
    """Metric, value, milliseconds since 1970 and step, as `mlflow.entities.Metric` takes them."""
    end: tuple[Status, float] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether there is to be a run: MLflow takes the start of a run at its creation alone."""
        return self.run_id is not None or self.record.start is not None

    @property
    def outcome(self) -> str:
        """How far the trial is, or that it was killed."""
        if self.record.end is not None:
            return self.record.end.outcome
        if self.end is not None:
            return "killed"
        return self.stored_outcome or ("running" if self.has_begun else "queued")

    def take(
        self,
        event: Event,
        problems: store.Problems,
        *,
        is_open: bool = False,
        is_sent: bool = False,
    ) -> None:
        """Add what an event says to what waits.

        Args:
            event: Of this trial; `record` has it already.
            problems: Gets the metrics that the schema does not list.
            is_open: Take these metrics too, and show how configs change.
            is_sent: Whether a former process has sent it; only later events build on it then.
        """
        if isinstance(event, TrialStarted):
            self._take_config(event, is_shown=is_open and not is_sent)
        if is_sent:
            return
        if isinstance(event, TrialRetried):
            self.is_complete, self.end, self.stored_outcome = False, None, None
            self.was_killed = True  # so that the store is told that it runs again
            self.tags |= {"outcome": "running", "error": ""}
        elif isinstance(event, TrialVoided):
            self.is_complete = False
            self._take_end("stopped", self.record.worked_until or event.time, event.message)
        elif isinstance(event, Row) and not self.is_complete:
            for name, value in event.metrics.items():
                if not is_open and schema.find(name) is None:
                    why = str(UnknownNameError("metric", name, schema.METRICS))
                    problems.add(f"metric `{name}` is not in the schema", why)
                    continue
                self.points.append((name, float(value), milliseconds(event.time), event.step))
        elif isinstance(event, TrialEnded) and not self.is_complete:
            self._take_end(event.outcome, event.time, event.message)

    def _take_end(self, outcome: Outcome, time: float, message: str) -> None:
        self.end = STATUS[outcome], time
        self.tags["outcome"] = outcome
        if message:
            self.tags["error"] = message[:_LONGEST_ERROR]

    def _take_config(self, event: TrialStarted, *, is_shown: bool) -> None:
        """Params at first; then numbers that change as metrics: MLflow refuses a changed param."""
        values, known = flat(event.config), self.config
        self.config = values
        if not self.has_params and not self.is_complete:
            self.params = flatten(event.config)
            self.has_params = True
        if not known:
            return
        start, last = self.record.start or event.time, self.record.last
        step = 0 if last is None else last.step
        for path, value in values.items():
            before = known.get(path)
            if before == value:
                continue
            if is_shown and not self.is_complete and _is_number(value):
                name = f"config/{path}"
                if isinstance(before, int | float) and path not in self.changed:
                    self.points.append((name, before, milliseconds(start), 0))
                self.points.append((name, float(value), milliseconds(event.time), step))
            self.changed.add(path)

    def kill(self, time: float) -> None:
        """End it if it has begun and not ended."""
        if self.has_begun and self.end is None and not self.is_complete:
            self.end = "KILLED", time

    def complete(self) -> None:
        """Forget what waits: the store has it all, or will never take it."""
        self.stored_outcome = self.outcome
        self.is_complete = True
        self.end = None
        for kept in (self.old_metrics, self.stored, self.params, self.tags):
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


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
