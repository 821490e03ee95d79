"""One trial on its way from the journal to MLflow: what waits, and how it is sent."""

from dataclasses import dataclass, field

from tuneparts import schema
from tuneparts.errors import UnknownNameError
from tuneparts.journal import Event, Row, TrialEnded, TrialId, TrialRetried, TrialStarted
from tuneparts.tracking import store
from tuneparts.tracking.card import DataFacts, flatten
from tuneparts.tracking.record import Status

STATUS: dict[str, Status] = {"finished": "FINISHED", "stopped": "FINISHED", "failed": "FAILED"}
"""MLflow's status of a run by the outcome of its trial; KILLED ones may go on."""
_LONGEST_ERROR = 4000
_MOST_PARAMS = 100
_MOST_ENTRIES = 1000
"""What MLflow takes in one batch."""


@dataclass
class TrialRun:
    """The MLflow run of one trial, and what the journal says that it still lacks."""

    trial: TrialId
    start: float
    run_id: str | None = None
    """None until the run is known to exist in the store."""
    may_exist: bool = False
    """Whether the store may have a run that we do not know of: its answer got lost."""
    was_killed: bool = False
    """Whether the store says KILLED, from a process that was interrupted."""
    is_complete: bool = False
    """Whether the store has everything; later events change nothing."""
    outcome: str = "running"
    has_params: bool = False
    has_data: bool = False
    """Whether the data set is logged as an input."""
    old_metrics: set[str] = field(default_factory=set)
    """Metrics that a former process logged, and whose steps in the store we do not know yet."""
    stored: set[tuple[str, int]] = field(default_factory=set)
    """Metrics and steps that a former process logged."""
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    points: list[tuple[str, float, int, int]] = field(default_factory=list)
    """Metric, value, milliseconds since 1970 and step, as `mlflow.entities.Metric` takes them."""
    end: tuple[Status, float] | None = None

    def fold(self, event: Event, problems: store.Problems) -> None:
        """Add what an event says; metrics that the schema does not list are problems."""
        if isinstance(event, TrialRetried):
            self._reopen()
        if self.is_complete:
            return
        if isinstance(event, TrialStarted):
            # MLflow refuses a changed param; what a population perturbs is reported as hyper/*.
            if not self.has_params:
                self.params = flatten(event.config)
                self.has_params = True
        elif isinstance(event, Row):
            for name, value in event.metrics.items():
                try:
                    schema.lookup(name)
                except UnknownNameError as error:
                    problems.add(f"metric `{name}` is not in the schema", str(error))
                else:
                    point = (name, float(value), milliseconds(event.time), event.step)
                    self.points.append(point)
        elif isinstance(event, TrialEnded):
            self.end = STATUS[event.outcome], event.time
            self.outcome = event.outcome
            self.tags["outcome"] = event.outcome
            if event.message:
                self.tags["error"] = event.message[:_LONGEST_ERROR]

    def _reopen(self) -> None:
        """Take back the end of a trial that had failed and is tried again."""
        self.is_complete, self.end, self.outcome = False, None, "running"
        self.was_killed = True  # so that the store is told that it runs again
        self.tags |= {"outcome": "running", "error": ""}

    def kill(self, time: float) -> None:
        """End it unless it has ended."""
        if self.end is None and not self.is_complete:
            self.end = "KILLED", time
            self.outcome = "killed"

    def complete(self) -> None:
        """Forget what waits: the store has it all, or will never take it."""
        self.is_complete = True
        self.end = None
        for waiting in (self.old_metrics, self.stored, self.params, self.tags, self.points):
            waiting.clear()

    def send(self, calls: store.Calls, data: DataFacts | None) -> None:
        """Send what waits to the run, and end it if the trial has ended."""
        client, run_id = calls.client, str(self.run_id)
        if self.was_killed and self.end is None:
            calls.make(lambda: client.update_run(run_id, status="RUNNING"))
            self.was_killed = False
        if not self.has_data and data is not None:
            calls.make(lambda: client.log_inputs(run_id, datasets=[data.as_input()]))
            self.has_data = True
        self._drop_stored(calls)
        self._send_entries(calls)
        if self.end is not None:
            status, end = self.end[0], milliseconds(self.end[1])
            calls.make(lambda: client.set_terminated(run_id, status, end_time=end))
            self.complete()

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
