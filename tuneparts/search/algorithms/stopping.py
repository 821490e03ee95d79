"""Stopping rules: random trials, each of which goes on unless it falls behind those before it."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from tuneparts.schema import Metric
from tuneparts.search.algorithms.base import Proposals, Timed, drawn_trials
from tuneparts.search.algorithms.judged import Judge, judged
from tuneparts.search.space import Dimension

if TYPE_CHECKING:  # an arm holds an algorithm
    from tuneparts.search.spec import Arm


class StoppingRule(Timed):
    """Random trials that are judged every so many passes, against those judged there before.

    A subclass says in `judge` who goes on. With exact timing a trial waits for those before it to
    be judged at the same passes; with free timing it is judged when it arrives.
    """

    takes_points = True
    keeps_first_trials = True  # a trial is judged against those before it, however many come

    num_trials: int = Field(gt=0)
    every: int = Field(gt=0)
    """Passes from one judgement to the next."""
    min_passes: int = Field(default=0, ge=0)
    """No trial is judged before so many passes."""
    min_trials: int = Field(default=5, ge=1)
    """Trials that are never stopped at each point, so that there is something to compare with."""

    @abstractmethod
    def judge(self) -> Judge:
        """Make the judge of one point, which remembers the trials that it has seen."""

    def trials_per_seed(self, space: Mapping[str, Dimension]) -> int:  # noqa: ARG002
        return self.num_trials

    def sequential_passes(self, arm: "Arm") -> int:
        return arm.config.passes

    def check(self, arm: "Arm") -> None:
        for name, value in (("every", self.every), ("min_passes", self.min_passes)):
            if value % arm.config.interval:
                raise ValueError(
                    f"trials are judged between intervals: `{name} % interval == 0` must hold, but "
                    f"got {value} % {arm.config.interval}"
                )

    def levels(self, passes: int) -> list[int]:
        """List the passes at which trials are judged, and the budget."""
        first = max(self.min_passes, self.every)
        return [*range(first, passes, self.every), passes]

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:
        trials = drawn_trials(arm, seed, range(self.num_trials))
        levels = self.levels(arm.config.passes)
        judges = [self.judge() for _ in levels[:-1]]
        yield from judged(trials, levels, judges, metric, is_free=self.is_free)


class MedianStopping(StoppingRule):
    """The median rule (Golovin et al. 2017, section 3.2.2).

    A trial is stopped when its best score so far is worse than the median of the mean scores that
    the trials before it had by then.
    """

    def judge(self) -> Judge:
        def mean(rewards: Sequence[float]) -> float:
            return float(np.mean(rewards))

        return _Quantile(0.5, self.min_trials, of=mean)


class PercentileStopping(StoppingRule):
    """A trial is stopped when its best score so far is not among the best at this point.

    It is compared with what the trials before it scored at the same passes.
    """

    keep: float = Field(default=0.25, gt=0, lt=1)
    """Share of trials that go on: 0.25 for the best quarter."""

    def judge(self) -> Judge:
        return _Quantile(1 - self.keep, self.min_trials, of=lambda rewards: rewards[-1])


class _Quantile:
    """Passes whose best reward is not below a quantile of what earlier trials had."""

    def __init__(
        self, quantile: float, min_trials: int, *, of: Callable[[Sequence[float]], float]
    ) -> None:
        self._quantile, self._min_trials, self._of = quantile, min_trials, of
        self._before: list[float] = []

    def __call__(self, rewards: Sequence[float]) -> bool:
        is_compared = len(self._before) >= self._min_trials
        passes = not is_compared or max(rewards) >= np.quantile(self._before, self._quantile)
        self._before.append(self._of(rewards))
        return bool(passes)
