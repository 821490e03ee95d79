"""What MLflow still lacks of a search: `TrialRun` for one trial, `ParentRun` for all of them.

Both are filled from events of the journal that `RunState` has folded already, and follow from the
journal alone: a replay makes the same points again, and those that the store has are left out.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, ClassVar

from tuneparts.core import schema
from tuneparts.core.errors import UnknownNameError
from tuneparts.core.schema import Direction, Metric
from tuneparts.search import events
from tuneparts.search.events import Event, TrialId
from tuneparts.search.frames import flat
from tuneparts.search.state import RunState, TrialRecord
from tuneparts.tracking import store
from tuneparts.tracking.card import DataFacts, _flatten
from tuneparts.tracking.record import Status

_STATUS: dict[str, Status] = {"finished": "FINISHED", "stopped": "FINISHED", "failed": "FAILED"}
"""MLflow's status of a run by the outcome of its trial; KILLED ones may go on."""
_LONGEST_ERROR = 4000
_COSTS = ("cost/steps", "cost/seconds")


def milliseconds(seconds: float) -> int:
    """MLflow's unit of time."""
    return round(1000 * seconds)


@dataclass(kw_only=True)
class MlflowRun:
    """One MLflow run: what waits to be sent to it, and what a former process has sent."""

    identity: ClassVar[Callable[[tuple[Any, ...]], object]] = itemgetter(0, 2, 3)
    """What two points have in common that are the same."""
    run_id: str | None = None
    """None until the run is known to exist in the store."""
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    points: list[tuple[str, float, int, int]] = field(default_factory=list)
    """Metric, value, milliseconds since 1970 and step, as `mlflow.entities.Metric` takes them."""
    _old_params: set[str] = field(default_factory=set)
    _old_metrics: set[str] = field(default_factory=set)
    """Metrics that a former process logged, and whose points in the store we do not know yet."""
    _stored: set[object] = field(default_factory=set)
    """The identities of points that a former process logged."""

    def adopt(self, found: Any) -> None:
        self.run_id = str(found.info.run_id)
        self._old_params, self._old_metrics = set(found.data.params), set(found.data.metrics)

    def flush(self, calls: store._Calls) -> None:
        run_id, identity = str(self.run_id), type(self).identity
        names = self._old_metrics.intersection(point[0] for point in self.points)
        if names:
            found = calls.make(store.points, calls.client, {run_id: names}) or []
            self._stored |= {identity((name, 0, at, step)) for _, name, step, at, _ in found}
            self._old_metrics -= names
        self.points[:] = [point for point in self.points if identity(point) not in self._stored]
        # MLflow changes no param: those of a run that was extended since stay as they were.
        for key in self._old_params.intersection(self.params):
            del self.params[key]
        calls.send(run_id, self.params, self.tags, self.points)


@dataclass(kw_only=True)
class TrialRun(MlflowRun):
    """The MLflow run of one trial; it waits with `record`, which the journal's events fill."""

    # After a power cut a trial repeats its last step, at another time.
    identity: ClassVar[Callable[[tuple[Any, ...]], object]] = itemgetter(0, 3)
    trial: TrialId
    record: TrialRecord
    sent: tuple[str, str, int | None] = ("RUNNING", "", None)
    """Status, outcome and time of the end, as the store has them."""
    is_refused: bool = False
    """Whether MLflow will never have it."""
    _is_retried: bool = False
    _has_data: bool = False
    _starts: list[events.TrialStarted] = field(default_factory=list)

    def adopt(self, found: Any) -> None:
        super().adopt(found)
        status, outcome = found.info.status, found.data.tags.get("outcome", "")
        self.sent = status, "" if status == "KILLED" else outcome, found.info.end_time

    @property
    def has_begun(self) -> bool:
        """Whether there is to be a run: MLflow takes the start of a run at its creation alone."""
        return self.run_id is not None or self.record.start is not None

    @property
    def outcome(self) -> str:
        if self.record.end is not None:
            return self.record.end.outcome
        running = "running" if self.has_begun else "queued"
        return "killed" if self.sent[0] == "KILLED" else running

    def _end(self, killed: float | None) -> tuple[str, str, int] | None:
        """What `sent` is to be; None while the trial runs."""
        end, until = self.record.end, self.record.worked_until
        if end is not None and until is not None:
            return _STATUS[end.outcome], end.outcome, milliseconds(until)
        return None if killed is None else ("KILLED", "", milliseconds(killed))

    @property
    def _is_settled(self) -> bool:
        """Whether the store has an end, without a second try after it."""
        return self.sent[0] in _STATUS.values() and not self._is_retried

    def is_complete(self, killed: float | None) -> bool:
        """Whether the store has everything; a trial that still runs ends as KILLED at `killed`."""
        is_lost = self._is_settled and self.record.end is None  # from the journal, by a power cut
        return self.is_refused or is_lost or self.sent == self._end(killed)

    def take(self, event: Event, problems: store._Problems, *, is_open: bool) -> None:
        """Add what an event says, which `record` has already, to what waits.

        Metrics that the schema does not list are problems, unless `is_open`: then they are shown
        too, and how configs change.
        """
        if isinstance(event, events.TrialStarted):
            self._starts.append(event)
            if len(self._starts) == 1:
                self.params = _flatten(event.config)
            elif is_open:
                self._show_changes()
        elif isinstance(event, events.TrialRetried):
            self._is_retried = True
            self.tags |= {"outcome": "running", "error": ""}
        elif isinstance(event, events.Row) and not self._is_settled:
            at = milliseconds(event.time), event.step
            for name, value in event.metrics.items():
                if is_open or schema.find(name) is not None:
                    self.points.append((name, float(value), *at))
                else:
                    why = str(UnknownNameError("metric", name, schema.METRICS))
                    problems.add(f"metric `{name}` is not in the schema", why)

    def _show_changes(self) -> None:
        """Log numbers of a config that changed as metrics: MLflow refuses a changed param."""
        *before, last = (flat(start.config) for start in self._starts)
        for path, value in last.items():
            known = [config.get(path) for config in before]
            if not _is_number(value) or value == known[-1]:
                continue
            shown = [(value, self._starts[-1])]
            if _is_number(known[0]) and known.count(known[0]) == len(known):
                shown.append((known[0], self._starts[0]))
            self.points += [
                (f"config/{path}", float(number), milliseconds(start.time), start.steps)
                for number, start in shown
            ]

    def send(
        self, calls: store._Calls, data: DataFacts | None, read_log: Callable[[TrialId], str],
        killed: float | None,
    ) -> None:  # fmt: skip
        """Send what waits, with data and log, and end the run if the trial has ended."""
        client, run_id, end = calls.client, str(self.run_id), self._end(killed)
        if end is None and self.sent[0] in _STATUS.values():  # it is tried again
            calls.make(client.update_run, run_id, status="RUNNING")
            self.sent = "RUNNING", "", None
        if not self._has_data and data is not None:
            calls.make(client.log_inputs, run_id, datasets=[data.as_input()])
            self._has_data = True
        if (ended := self.record.end) is not None:
            self.tags |= {"outcome": ended.outcome}
            self.tags |= {"error": ended.message[:_LONGEST_ERROR]} if ended.message else {}
        waiting = len(self.points)
        try:
            self.flush(calls)
        finally:
            calls.points += waiting - len(self.points)
        if self.outcome == "failed":
            try:
                text = read_log(self.trial)
            except Exception as error:  # a log that cannot be read must not keep the rest waiting
                calls.problems.add("log not read", f"{self.trial}: {error}")
                text = ""
            if text:
                calls.make(client.log_text, run_id, text, "log.txt")
        if end is not None:
            calls.make(client.set_terminated, run_id, end[0], end_time=end[2])
            self.sent = end


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(kw_only=True)
class ParentRun(MlflowRun):
    """The MLflow run of a search, with counts and costs of all trials and each arm's best score.

    A point has the number of ended trials as its step. The score of an arm is the mean over seeds
    of its best finished trial, by the search's own metric.
    """

    metric: Metric | None = None
    numbers: dict[str, float] = field(default_factory=dict)
    """The newest value of each number, by the names that MLflow shows."""
    _counted: dict[TrialId, str] = field(default_factory=dict)
    """Trial that ended -> the outcome that it is counted under."""
    _best: dict[str, dict[int, float]] = field(default_factory=dict)
    """Arm -> seed -> best score."""
    _num_ended: int = 0

    def take(self, event: Event, state: RunState) -> None:
        if not isinstance(event, events.TrialEnded | events.TrialRetried | events.TrialVoided):
            return
        trial, record = event.trial, state.trials[event.trial]
        before = self._counted.pop(trial, None)
        after = None if record.end is None else record.end.outcome
        changes = {f"trials/{before}": -1.0} if before else {}
        if after is not None:
            self._counted[trial] = after
            changes[f"trials/{after}"] = 1.0
        sign = bool(after) - bool(before)
        self._num_ended += max(sign, 0)
        if sign:
            changes |= {c: sign * record.latest[c] for c in _COSTS if c in record.latest}
        news = {name: self.numbers.get(name, 0.0) + change for name, change in changes.items()}
        if self.metric is not None and after and (before or after == "finished"):
            news |= self._scores(self.metric, trial, state, is_voided=before is not None)
        at = milliseconds(event.time), self._num_ended
        self.points += [(*pair, *at) for pair in news.items() if pair not in self.numbers.items()]
        self.numbers |= news

    def _scores(
        self, metric: Metric, trial: TrialId, state: RunState, *, is_voided: bool
    ) -> dict[str, float]:
        """The scores of the trial's arm and of the best arm, after it finished or was voided."""
        best = max if metric.direction is Direction.UP else min
        seeds = self._best.setdefault(trial.arm, {})
        known = seeds.pop(trial.seed, math.nan)
        rivals = state.replicate(trial.arm, trial.seed) if is_voided else (trial,)
        scores = [
            state.trials[other].latest.get(metric.name, math.nan)
            for other in rivals
            if self._counted.get(other) == "finished"
        ]
        scores = [*filter(math.isfinite, scores if is_voided else [known, *scores])]
        if not scores:
            return {}
        seeds[trial.seed] = best(scores)
        arms = {arm: sum(own.values()) / len(own) for arm, own in self._best.items() if own}
        top = best(arms.values())
        return {f"arm/{trial.arm}/{metric.name}": arms[trial.arm], f"best/{metric.name}": top}
