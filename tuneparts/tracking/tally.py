"""What the parent run shows of all its trials together, so that searches can be ranked in a list.

Each end of a trial makes one point of every number that it changes. The points follow from the
journal alone, so a replay makes the same points again, and MLflow ignores those that it has.
"""

import math
from dataclasses import dataclass, field

from tuneparts.core.schema import Metric
from tuneparts.search.journal import Event, Row, TrialEnded, TrialId, TrialRetried, TrialVoided
from tuneparts.tracking import store
from tuneparts.tracking.trial_run import milliseconds

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
        >>> tally, trial = Tally(lookup("val/accuracy")), TrialId("random", seed=0, index=0)
        >>> tally.fold(Row(trial, 10, {"val/accuracy": 0.75, "cost/passes": 10.0}, time=1.0))
        >>> tally.fold(TrialEnded(trial, "finished", time=2.0))
        >>> tally.numbers["best/val/accuracy"], tally.numbers["trials/finished"]
        (0.75, 1.0)
    """

    metric: Metric | None = None
    """What the search selects by; None where nobody said."""
    numbers: dict[str, float] = field(default_factory=dict)
    """All that it says so far, by the names that MLflow shows."""
    points: list[tuple[str, float, int, int]] = field(default_factory=list)
    """What waits to be sent: name, value, milliseconds since 1970, step."""
    _last: dict[TrialId, dict[str, float]] = field(default_factory=dict)
    """The newest of each number that counts, for trials that have not ended."""
    _failed: dict[TrialId, dict[str, float]] = field(default_factory=dict)
    """The same of trials that failed, which may be tried again."""
    _best: dict[str, dict[int, float]] = field(default_factory=dict)
    """Arm -> seed -> best score."""
    _ended: dict[TrialId, tuple[str, float]] = field(default_factory=dict)
    """Trial that ended -> outcome and score."""
    _num_ended: int = 0

    def fold(self, event: Event) -> None:
        """Take one event; each only once."""
        if isinstance(event, Row):
            self._last.setdefault(event.trial, {}).update(event.metrics)
        elif isinstance(event, TrialEnded):
            self._end(event, self._last.pop(event.trial, {}))
        elif isinstance(event, TrialRetried):
            self._take_back(event)
        elif isinstance(event, TrialVoided):
            self._void(event)

    def _end(self, event: TrialEnded, last: dict[str, float]) -> None:
        self._num_ended += 1
        score = math.nan if self.metric is None else last.get(self.metric.name, math.nan)
        self._ended[event.trial] = event.outcome, score
        name = f"trials/{event.outcome}"
        news = {name: self.numbers.get(name, 0.0) + 1}
        news |= {cost: self.numbers.get(cost, 0.0) + last[cost] for cost in _COSTS if cost in last}
        if self.metric is not None and event.outcome == "finished":
            news |= self._scores(self.metric, event.trial, score)
        if event.outcome == "failed":
            self._failed[event.trial] = last
        self._say(news, event.time)

    def _take_back(self, event: TrialRetried) -> None:
        """Uncount a trial that had failed and is tried again."""
        last = self._failed.pop(event.trial, {})
        self._last[event.trial] = last
        news = {"trials/failed": self.numbers.get("trials/failed", 1.0) - 1}
        news |= {cost: self.numbers[cost] - last[cost] for cost in _COSTS if cost in last}
        self._say(news, event.time)

    def _void(self, event: TrialVoided) -> None:
        """Count a trial as stopped, and leave its score out; what it cost stays."""
        trial = event.trial
        if trial not in self._ended:
            self._end(TrialEnded(trial, "stopped", event.time), self._last.pop(trial, {}))
            return
        outcome, _ = self._ended[trial]
        self._ended[trial] = "stopped", math.nan
        news = {f"trials/{outcome}": self.numbers[f"trials/{outcome}"] - 1}
        news["trials/stopped"] = self.numbers.get("trials/stopped", 0.0) + 1
        seeds = self._best.pop(trial.arm, {})
        seeds.pop(trial.seed, None)
        self._best |= {trial.arm: seeds} if seeds else {}
        for other, (how, score) in self._ended.items():
            is_of_seed = (other.arm, other.seed) == (trial.arm, trial.seed)
            if is_of_seed and how == "finished" and self.metric is not None:
                news |= self._scores(self.metric, other, score)
        self._say(news, event.time)

    def _say(self, news: dict[str, float], time: float) -> None:
        at = milliseconds(time), self._num_ended
        self.points += [(*pair, *at) for pair in news.items() if pair not in self.numbers.items()]
        self.numbers |= news

    def _scores(self, metric: Metric, trial: TrialId, score: float) -> dict[str, float]:
        """The scores of the trial's arm and of the best arm, with the trial counted in."""
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
