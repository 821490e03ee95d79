"""What MLflow still lacks of a search: `TrialRun` for one trial, `Tally` for all of them together.

Both are filled from events of the journal that `RunState` has folded already, and follow from the
journal alone: a replay makes the same points again, and MLflow ignores those that it has.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tuneparts.core import schema
from tuneparts.core.errors import UnknownNameError
from tuneparts.core.schema import Metric
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
from tuneparts.search.state import RunState, TrialRecord
from tuneparts.tracking import store
from tuneparts.tracking.card import DataFacts, flatten
from tuneparts.tracking.record import Status

STATUS: dict[str, Status] = {"finished": "FINISHED", "stopped": "FINISHED", "failed": "FAILED"}
"""MLflow's status of a run by the outcome of its trial; KILLED ones may go on."""
_LOG = "log.txt"
"""The artifact of a failed trial: the last lines that it printed, and its traceback."""
_LONGEST_ERROR = 4000
_COSTS = ("cost/passes", "cost/seconds")


def milliseconds(seconds: float) -> int:
    """MLflow's unit of time."""
    return round(1000 * seconds)


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

    def take(self, event: Event, problems: store.Problems, *, is_open: bool, is_sent: bool) -> None:
        """Add what an event says, which `record` has already, to what waits.

        Metrics that the schema does not list are problems, unless `is_open`: then they are shown
        too, and how configs change. Of an event that a former process has sent (`is_sent`) only
        the config is kept, on which later events build.
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
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_shown and not self.is_complete and is_number:
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
        """Send what waits to the run, with its data and log, and end it if the trial has ended."""
        client, run_id = calls.client, str(self.run_id)
        if self.was_killed and self.end is None:
            calls.make(lambda: client.update_run(run_id, status="RUNNING"))
            self.was_killed = False
        if not self.has_data and data is not None:
            calls.make(lambda: client.log_inputs(run_id, datasets=[data.as_input()]))
            self.has_data = True
        self._drop_stored(calls, run_id)
        waiting = len(self.points)
        try:
            calls.send(run_id, self.params, self.tags, self.points)
        finally:
            calls.points += waiting - len(self.points)
        if self.outcome == "failed":
            try:
                text = read_log(self.trial)
            except Exception as error:  # a log that cannot be read must not keep the rest waiting
                calls.problems.add("log not read", f"{self.trial}: {error}")
                text = ""
            if text:
                calls.make(lambda: client.log_text(run_id, text, _LOG))
        if self.end is not None:
            status, end = self.end[0], milliseconds(self.end[1])
            calls.make(lambda: client.set_terminated(run_id, status, end_time=end))
            self.complete()

    def _drop_stored(self, calls: store.Calls, run_id: str) -> None:
        """Leave out points whose step a former process has sent, perhaps with another time."""
        names = self.old_metrics.intersection(point[0] for point in self.points)
        if names:
            found = calls.make(lambda: store.points(calls.client, {run_id: names}))
            self.stored.update((name, step) for _, name, step, _, _ in found or ())
            self.old_metrics -= names
        self.points = [point for point in self.points if (point[0], point[3]) not in self.stored]


@dataclass
class Tally:
    """What the parent run shows of all trials: their counts and costs, and each arm's best score.

    Each end of a trial makes one point of every number that it changes; its step is the number of
    ended trials. The score of an arm is the mean over seeds of its best finished trial, by the
    search's own metric; test data has no part in it.
    """

    metric: Metric | None = None
    """What the search selects by, where that is known."""
    numbers: dict[str, float] = field(default_factory=dict)
    """The newest value of each number, by the names that MLflow shows."""
    points: list[tuple[str, float, int, int]] = field(default_factory=list)
    """What waits to be sent: name, value, milliseconds since 1970, step."""
    _counted: dict[TrialId, str] = field(default_factory=dict)
    """Trial that ended -> the outcome that it is counted under."""
    _best: dict[str, dict[int, float]] = field(default_factory=dict)
    """Arm -> seed -> best score."""
    _num_ended: int = 0

    def take(self, event: Event, state: RunState) -> None:
        """Take one event that was news to `state`, which has it already."""
        if not isinstance(event, TrialEnded | TrialRetried | TrialVoided):
            return
        trial, record = event.trial, state.trials[event.trial]
        before = self._counted.pop(trial, None)
        after = None if record.end is None else record.end.outcome
        news = {f"trials/{before}": self._number(f"trials/{before}") - 1} if before else {}
        if after is not None:
            news[f"trials/{after}"] = self._number(f"trials/{after}") + 1
            self._counted[trial] = after
        sign = bool(after) - bool(before)
        if sign:
            self._num_ended += max(sign, 0)
            costs = [cost for cost in _COSTS if cost in record.latest]
            news |= {cost: self._number(cost) + sign * record.latest[cost] for cost in costs}
        if self.metric is not None and before and after:  # voided
            news |= self._rescored(self.metric, trial, state)
        elif self.metric is not None and after == "finished":
            news |= self._scores(self.metric, trial, state)
        at = milliseconds(event.time), self._num_ended
        self.points += [(*pair, *at) for pair in news.items() if pair not in self.numbers.items()]
        self.numbers |= news

    def _number(self, name: str) -> float:
        return self.numbers.get(name, 0.0)

    def _rescored(self, metric: Metric, trial: TrialId, state: RunState) -> dict[str, float]:
        """The scores after a trial of a replicate does not count any more."""
        seeds = self._best.pop(trial.arm, {})
        seeds.pop(trial.seed, None)
        self._best |= {trial.arm: seeds} if seeds else {}
        news: dict[str, float] = {}
        for other in state.replicate(trial.arm, trial.seed):
            if self._counted.get(other) == "finished":
                news |= self._scores(metric, other, state)
        return news

    def _scores(self, metric: Metric, trial: TrialId, state: RunState) -> dict[str, float]:
        """The scores of the trial's arm and of the best arm, with the trial counted in."""
        score = state.trials[trial].latest.get(metric.name, math.nan)
        if not math.isfinite(score):
            return {}
        seeds = self._best.setdefault(trial.arm, {})
        if trial.seed not in seeds or metric.better(score, seeds[trial.seed]):
            seeds[trial.seed] = score
        arms = {arm: sum(found.values()) / len(found) for arm, found in self._best.items()}
        best = next(iter(arms.values()))
        for mean in arms.values():
            best = mean if metric.better(mean, best) else best
        return {f"arm/{trial.arm}/{metric.name}": arms[trial.arm], f"best/{metric.name}": best}

    def send(self, calls: store.Calls, run_id: str) -> None:
        """Log what waits to the parent run."""
        calls.send(run_id, {}, {}, self.points)
