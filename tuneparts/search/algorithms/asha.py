"""Asynchronous successive halving (Li et al. 2020): no trial waits for a whole rung."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from tuneparts.core.schema import Metric
from tuneparts.search.algorithms.base import Proposals, Timed, drawn_trials
from tuneparts.search.algorithms.halving import check_rungs, rungs
from tuneparts.search.algorithms.judged import judged
from tuneparts.search.space import Dimension

if TYPE_CHECKING:  # an arm holds an algorithm
    from tuneparts.search.arm import Arm


class Asha(Timed):
    """Successive halving without barriers: trials compete at rungs, and few reach the full budget.

    A trial continues from a rung when it is among the best 1/r of those that were judged there
    before it. With exact timing trials are judged in their order, each as soon as those before it
    have been; with free timing in the order in which they arrive, as Ray's `ASHAScheduler` does.
    More continue than in `SuccessiveHalving`, because early ones have few to compete with.
    """

    takes_points = True
    keeps_first_trials = True  # a trial is judged against those before it, however many come

    num_trials: int = Field(gt=0)
    min_passes: int = Field(gt=0)
    """Passes of the first rung."""
    reduction: int = Field(default=4, ge=2)
    """Reduction factor r: about the best 1/r of a rung continue, to a rung r times longer."""

    def trials_per_seed(self, space: Mapping[str, Dimension]) -> int:  # noqa: ARG002
        return self.num_trials

    def expected_passes(self, arm: "Arm") -> int:
        """The cost when scores come in no order.

        The most is every trial in full: when each is better than all before it, none is stopped.
        """
        levels = [0, *rungs(self.min_passes, self.reduction, arm.config.passes)]
        alive, spent = float(self.num_trials), 0.0
        for start, end in itertools.pairwise(levels):
            spent += alive * (end - start)
            alive = _expected_to_pass(alive, self.reduction)
        return round(spent)

    def sequential_passes(self, arm: "Arm") -> int:
        return arm.config.passes

    def check(self, arm: "Arm") -> None:
        check_rungs(self.min_passes, arm)

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:
        trials = drawn_trials(arm, seed, range(self.num_trials))
        levels = rungs(self.min_passes, self.reduction, arm.config.passes)
        judges = [Rung(self.reduction) for _ in levels[:-1]]
        yield from judged(trials, levels, judges, metric, is_free=self.is_free)


class Rung:
    """Judges the trials that arrive at a rung, one after the other (Li et al. 2020).

    A trial passes when its reward is not below the (1 - 1/r) quantile, linearly interpolated, of
    those before it; the first always does.
    """

    def __init__(self, reduction: int) -> None:
        self._percent = (1 - 1 / reduction) * 100
        self._before: list[float] = []

    def __call__(self, rewards: Sequence[float], index: int = 0) -> bool:  # noqa: ARG002
        reward = rewards[-1]
        passes = not self._before or bool(reward >= np.percentile(self._before, self._percent))
        self._before.append(reward)
        return passes


def promoted(
    scores: Sequence[float], reduction: int, *, better: Callable[[float, float], bool]
) -> list[bool]:
    """Decide which trials of a rung continue, given their scores in order.

    This is what Ray's asynchronous rule gives when trials arrive in this order, except that a score
    that is not finite does not continue, and the others are not compared with it.
    """
    rung = Rung(reduction)
    rewards = np.array(scores, dtype=float) * (1 if better(1.0, 0.0) else -1)
    return [bool(np.isfinite(reward)) and rung([float(reward)]) for reward in rewards]


def _expected_to_pass(count: float, reduction: int) -> float:
    """How many of so many trials pass a rung on average, when scores come in no order.

    A new score falls into each of the k + 1 gaps between the k before it equally often, and
    passes in about k - (1 - 1/r)(k - 1) of them.
    """
    quantile = 1 - 1 / reduction
    gaps = [(k - quantile * (k - 1)) / (k + 1) for k in range(1, max(1, round(count)))]
    return min(count, 1 + sum(gaps))
