"""What the parent run shows of all its trials together, so that searches can be ranked in a list.

Each end of a trial makes one point of every number that it changes. The points follow from the
journal alone, so a replay makes the same points again, and MLflow ignores those that it has.
"""

import math
from dataclasses import dataclass, field

from tuneparts.core.schema import Metric
from tuneparts.search.events import Event, TrialEnded, TrialId, TrialRetried, TrialVoided
from tuneparts.search.state import RunState
from tuneparts.tracking import store

_COSTS = ("cost/passes", "cost/seconds")
_MOST_POINTS = 1000
"""What MLflow takes in one batch."""


@dataclass
class Tally:
    """Counts of trials, what they cost, and the best score of each arm.

    The score of an arm is the mean over seeds of its best finished trial, by the search's own
    metric; test data has no part in it. The step of a point is the number of ended trials.

    Example:
        >>> from tuneparts.core.schema import lookup
        >>> from tuneparts.search.journal import Row
        >>> tally, state = Tally(lookup("val/accuracy")), RunState()
        >>> trial = TrialId("random", seed=0, index=0)
        >>> row = Row(trial, 10, {"val/accuracy": 0.75, "cost/passes": 10.0}, time=1.0)
        >>> for event in (row, TrialEnded(trial, "finished", time=2.0)):
        ...     if state.apply(event):
        ...         tally.take(event, state)
        >>> tally.numbers["best/val/accuracy"], tally.numbers["trials/finished"]
        (0.75, 1.0)
    """

    metric: Metric | None = None
    """What the search selects by; None where nobody said."""
    numbers: dict[str, float] = field(default_factory=dict)
    """All that it says so far, by the names that MLflow shows."""
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
        at = round(1000 * event.time), self._num_ended
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
        from mlflow.entities import Metric as Point

        while self.points:
            calls.log(run_id, [Point(*point) for point in self.points[:_MOST_POINTS]])
            del self.points[:_MOST_POINTS]
