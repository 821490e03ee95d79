"""Successive halving (Li et al. 2020), with decisions in the order of trials.

The decision, `promoted`, is a pure function below the class that uses it.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from tuneparts.journal import TrialId
from tuneparts.schema import Metric
from tuneparts.search.algorithms.base import Algorithm, Proposals, draw, stretch, whole_trial
from tuneparts.search.segment import Batch
from tuneparts.search.space import Dimension

if TYPE_CHECKING:  # an arm holds an algorithm
    from tuneparts.search.spec import Arm


class Asha(Algorithm):
    """Successive halving: trials compete at rungs, and few reach the full budget.

    Whether a trial continues is decided by the asynchronous rule, applied in the order of trials
    and not of arrival.
    """

    is_adaptive = True

    num_trials: int = Field(gt=0)
    min_passes: int = Field(gt=0)
    """Passes of the first rung."""
    reduction: int = Field(default=4, ge=2)
    """Reduction factor r: about the best 1/r of a rung continue, to a rung r times longer."""

    def trials_per_seed(self, space: Mapping[str, Dimension]) -> int:  # noqa: ARG002
        return self.num_trials

    def expected_passes(self, arm: "Arm") -> int:
        """The cost when exactly one in r continues.

        The asynchronous rule lets some more pass, the first trial of each rung for one.
        """
        levels = [0, *rungs(self.min_passes, self.reduction, arm.config.passes)]
        alive, spent = float(self.num_trials), 0.0
        for start, end in itertools.pairwise(levels):
            spent += alive * (end - start)
            alive = max(1.0, alive / self.reduction)
        return round(spent)

    def sequential_passes(self, arm: "Arm") -> int:
        return arm.config.passes

    def check(self, arm: "Arm") -> None:
        if self.min_passes % arm.config.interval:
            raise ValueError(
                "a rung is a whole number of intervals: `min_passes % interval == 0` must hold, "
                f"but got {self.min_passes} % {arm.config.interval}"
            )

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:
        passes = arm.config.passes
        alive = [
            whole_trial(arm, seed=seed, index=i, values=draw(arm, seed, i))
            for i in range(self.num_trials)
        ]
        stopped: tuple[TrialId, ...] = ()
        levels = rungs(self.min_passes, self.reduction, passes)
        for number, bounds in enumerate(itertools.pairwise([0, *levels])):
            alive = [stretch(one, number=number, bounds=bounds) for one in alive]
            results = yield Batch(tuple(alive), stopped)
            alive = [one for one in alive if results[one.trial].failure is None]
            if bounds[1] == passes:
                return
            scores = [results[one.trial].score(metric) for one in alive]
            kept = promoted(scores, self.reduction, better=metric.better)
            stopped = tuple(one.trial for one, keep in zip(alive, kept, strict=True) if not keep)
            alive = [one for one, keep in zip(alive, kept, strict=True) if keep]


def rungs(min_passes: int, reduction: int, passes: int) -> list[int]:
    """List the budgets at which trials are compared: m, m r, m r^2, ... and the full one."""
    levels = []
    level = min_passes
    while level < passes:
        levels.append(level)
        level *= reduction
    return [*levels, passes]


def promoted(
    scores: Sequence[float], reduction: int, *, better: Callable[[float, float], bool]
) -> list[bool]:
    """Decide which trials of a rung continue, one after the other (Li et al. 2020).

    A trial continues when it is not worse than the (1 - 1/reduction) quantile, linearly
    interpolated, of the trials before it; the first always does. This is what Ray's asynchronous
    rule gives when trials arrive in order. A decision depends on earlier trials only, so a rung
    can run in any order and on any number of workers.

    A trial without a finite score does not continue, and the others are not compared with it.
    """
    larger_is_better = better(1.0, 0.0)
    kept: list[bool] = []
    before: list[float] = []
    for reward in np.array(scores, dtype=float) * (1 if larger_is_better else -1):
        if not np.isfinite(reward):
            kept.append(False)
            continue
        limit = np.percentile(before, (1 - 1 / reduction) * 100) if before else reward
        kept.append(bool(reward >= limit))
        before.append(reward)
    return kept
