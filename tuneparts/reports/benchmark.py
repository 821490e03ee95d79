"""Several runs as one benchmark: each arm's score over all tasks, with its uncertainty.

Scores of a task that has two references are put on one scale: 0 is the worse one, 1 the better one,
such as no augmentation and the true one. Over these tasks and their replicates they are summarised
by the interquartile mean (Agarwal et al. 2021). Where no task has both, scores are taken as they
are. The probability of improvement over one arm needs no scale and is over all tasks; replicates
draw the data anew for all arms alike, so it compares within a replicate. Intervals are a
hierarchical bootstrap: tasks are drawn with replacement, then replicates within each, the same ones
for all arms; the means of the references are taken as known.

Friedman's test and the critical difference of Nemenyi (Demsar 2006) are given only where the
chi-squared approximation holds: more than ten tasks and more than six arms.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tuneparts import schema, seeding
from tuneparts.errors import ConfigError, UnknownNameError
from tuneparts.reports.run_data import RunData
from tuneparts.reports.select import column
from tuneparts.reports.statistics import Interval

Floats = npt.NDArray[np.float64]
Estimate: TypeAlias = tuple[float, Interval]
FEWEST_TASKS, FEWEST_ARMS = 11, 7
"""Below these the p value of Friedman's test is not to be trusted (as scipy says of its own)."""
RESAMPLES = 2000


@dataclass(frozen=True, eq=False)
class Benchmark:
    """Scores of the arms that all tasks share."""

    metric: str
    tasks: tuple[str, ...]
    arms: tuple[str, ...]
    scores_SA: tuple[Floats, ...]
    """For each task, replicates by arms, as measured; only replicates that all arms have."""
    larger_is_better: bool
    references: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Mean scores of the worse and the better reference, of the tasks that have both."""
    against: str | None = None
    """The arm over which others improve or not."""

    @property
    def is_normalised(self) -> bool:
        """Whether 0 and 1 are the references of each task that has both."""
        return bool(self.references)

    @property
    def prefers_larger(self) -> bool:
        """Whether larger scores are better on the scale of `scaled`."""
        return self.is_normalised or self.larger_is_better

    @property
    def scaled_tasks(self) -> tuple[str, ...]:
        """The tasks whose scores can be taken together: those with references, or else all."""
        return tuple(task for task in self.tasks if task in self.references) or self.tasks

    @property
    def scaled(self) -> tuple[Floats, ...]:
        """For each of `scaled_tasks` (S, A): scores between its references."""
        found = []
        for task, scores_SA in zip(self.tasks, self.scores_SA, strict=True):
            if task in self.scaled_tasks:
                low, high = self.references.get(task, (0.0, 1.0))
                found.append((scores_SA - low) / (high - low))
        return tuple(found)

    @property
    def fewest_replicates(self) -> int:
        """Of any task; below three an interval says nothing."""
        return min(len(scores) for scores in self.scores_SA)

    @property
    def ranks(self) -> Floats:
        """(T, A) ranks of the means over replicates, 1 the best; equal ones share their mean."""
        from scipy import stats

        means_TA = np.array([scores.mean(axis=0) for scores in self.scores_SA])
        return np.asarray(stats.rankdata(self._sign * -means_TA, axis=1))

    @property
    def _sign(self) -> int:
        return 1 if self.larger_is_better else -1

    def interquartile_means(self) -> dict[str, Estimate]:
        """The interquartile mean of each arm, with its 95 % interval."""
        return self._estimates(self.scaled, lambda parts: interquartile_mean(np.concatenate(parts)))

    def improvements(self) -> dict[str, Estimate]:
        """How probably each arm is better than `against` on a replicate of a task, with intervals.

        Every task counts alike, and equal scores count half. Empty where there is no such arm.
        """
        if self.against is None:
            return {}
        base = self.arms.index(self.against)
        wins_SA = [
            (np.sign(self._sign * (scores - scores[:, [base]])) + 1) / 2
            for scores in self.scores_SA
        ]
        found = self._estimates(
            wins_SA, lambda parts: np.mean([part.mean(axis=0) for part in parts], axis=0)
        )
        return {arm: one for arm, one in found.items() if arm != self.against}

    def _estimates(
        self, parts: Sequence[Floats], summary: Callable[[Sequence[Floats]], Floats]
    ) -> dict[str, Estimate]:
        """A summary over tasks of (S, A) each, with its interval: by arm."""
        rng = seeding.numpy_generator(0, "reports", "benchmark")
        point_A = summary(parts)
        draws_RA = np.array([summary(_resampled(parts, rng)) for _ in range(RESAMPLES)])
        low_A, high_A = np.quantile(draws_RA, [0.025, 0.975], axis=0)
        return {
            arm: (float(point_A[i]), Interval(float(low_A[i]), float(high_A[i]), 0.95))
            for i, arm in enumerate(self.arms)
        }

    def profile(self, thresholds: Floats) -> Floats:
        """(A, K): share of `scaled_tasks` and replicates in which an arm is at least so good.

        Every task counts alike, however many replicates it has.
        """
        sign = 1 if self.prefers_larger else -1
        shares = [
            (sign * scores[:, :, None] >= sign * thresholds).mean(axis=0) for scores in self.scaled
        ]
        return np.asarray(np.mean(shares, axis=0))

    @property
    def has_enough_for_ranks(self) -> bool:
        """Whether Friedman's test and the critical difference are valid."""
        return len(self.tasks) >= FEWEST_TASKS and len(self.arms) >= FEWEST_ARMS

    @property
    def friedman(self) -> float:
        """P value of all arms being alike; NaN where the test is not valid."""
        ranks = self.ranks
        if not self.has_enough_for_ranks or np.ptp(ranks) == 0:
            return math.nan
        from scipy import stats

        return float(stats.friedmanchisquare(*ranks.T).pvalue)

    @property
    def critical_difference(self) -> float:
        """Mean ranks that lie further apart differ at 5 % (Nemenyi); NaN where it is not valid."""
        if not self.has_enough_for_ranks:
            return math.nan
        from scipy import stats

        k, n = len(self.arms), len(self.tasks)
        q = float(stats.studentized_range.ppf(0.95, k, np.inf)) / math.sqrt(2)
        return q * math.sqrt(k * (k + 1) / (6 * n))


def _resampled(parts: Sequence[Floats], rng: np.random.Generator) -> list[Floats]:
    """Tasks drawn with replacement, then replicates of each."""
    drawn = [parts[task] for task in rng.integers(len(parts), size=len(parts))]
    return [scores_SA[rng.integers(len(scores_SA), size=len(scores_SA))] for scores_SA in drawn]


def interquartile_mean(scores_NA: Floats) -> Floats:
    """Mean of the middle half of each column; the outer scores count by the part that is inside.

    Example:
        >>> interquartile_mean(np.array([[0.0], [1.0], [3.0], [100.0]]))
        array([2.])
    """
    ordered = np.sort(scores_NA, axis=0)
    num = len(ordered)
    edges = np.arange(num + 1) / num
    weights = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0, None)
    return np.asarray(weights @ ordered / weights.sum())


def collect(
    runs: Sequence[tuple[str, RunData]], metric: str, *, against: str | None = None
) -> Benchmark:
    """Bring runs together: the arms that all have, on one scale where references allow it.

    Args:
        runs: name of the task, and what its run left.
        metric: of the trial selected by validation.
        against: the arm over which others improve; None for the second of the two arms that the
            searches compare, where it is the same in all of them.
    """
    if not runs:
        raise ConfigError("a benchmark has at least one task, but got none. Name a run.")
    by_task = {task: _scores(data, metric) for task, data in runs}
    first = next(iter(by_task.values()))
    shared = [arm for arm in first if all(arm in scores for scores in by_task.values())]
    is_up = schema.lookup(metric).direction is schema.Direction.UP
    competing = [
        name
        for name in shared
        if not any(name in data.metadata.references for _, data in runs)
        and all(data.metadata.arm(name).competes for _, data in runs)
    ]
    arms = competing if len(competing) > 1 else shared
    if len(arms) < 2:
        raise ConfigError(
            f"a benchmark compares at least two arms that every run has scores of, but "
            f"{list(by_task)} share {shared}. Name runs of searches with the same arms."
        )
    found = []
    for task, scores in by_task.items():
        seeds = sorted(set.intersection(*(set(scores[arm]) for arm in arms)))
        if not seeds:
            raise ConfigError(
                f"arms are compared over replicates that all of them have, but those of {task} "
                "share none. Resume or extend it."
            )
        found.append(np.array([[scores[arm][seed] for arm in arms] for seed in seeds]))
    return Benchmark(
        metric=metric,
        tasks=tuple(by_task),
        arms=tuple(arms),
        scores_SA=tuple(found),
        larger_is_better=is_up,
        references=_references(runs, by_task, is_up=is_up),
        against=_rival(runs, arms, against),
    )


def _rival(
    runs: Sequence[tuple[str, RunData]], arms: Sequence[str], asked: str | None
) -> str | None:
    """The arm that others are held against: the one asked for, or that of all searches."""
    if asked is not None:
        if asked not in arms:
            raise UnknownNameError("arm that all tasks share", asked, arms)
        return asked
    declared = {name for _, data in runs for name in data.metadata.compare[1:] or ("",)}
    shared = [arm for arm in arms if declared == {arm}]
    return shared[0] if shared else None


def _scores(data: RunData, metric: str) -> dict[str, dict[int, float]]:
    known = data.selected.assign(score=column(data.selected, metric)).dropna(subset=["score"])
    return {
        arm.name: dict(zip(own["seed"].astype(int), own["score"].astype(float), strict=True))
        for arm in data.metadata.arms
        if len(own := known[known["arm"] == arm.name])
    }


def _references(
    runs: Sequence[tuple[str, RunData]],
    by_task: Mapping[str, Mapping[str, Mapping[int, float]]],
    *,
    is_up: bool,
) -> dict[str, tuple[float, float]]:
    """Mean scores of both references of each task that has them, the worse first.

    They are those that its search declares, or arms called `none` and `oracle`. Where the second is
    not better than the first there is no scale between them.
    """
    found = {}
    sign = 1 if is_up else -1
    for task, data in runs:
        pair = (
            data.metadata.references if len(data.metadata.references) == 2 else ("none", "oracle")
        )
        scores = by_task[task]
        if set(pair) <= set(scores):
            low, high = (float(np.mean(list(scores[name].values()))) for name in pair)
            if sign * high > sign * low:
                found[task] = low, high
    return found


def over_budget(
    runs: Sequence[tuple[str, RunData]], found: Benchmark, cost: str = "cost/passes"
) -> pd.DataFrame:
    """Score after a share of the budget, over `scaled_tasks`: columns arm, share, mean.

    The budget of a task is what its dearest arm spends. An arm that has no score yet at a share in
    one of the tasks has no row there.

    Args:
        runs: name of the task, and what its run left.
        found: the same, brought together by `collect`.
        cost: what is spent, `cost/passes` or `cost/seconds`.
    """
    from tuneparts.reports.figures.accuracy import anytime, over_seeds

    shares = np.linspace(0.02, 1.0, 50)
    curves: dict[str, list[Floats]] = {arm: [] for arm in found.arms}
    for task, data in runs:
        if task not in found.scaled_tasks:
            continue
        means = over_seeds(anytime(data, found.metric, cost))
        most = float(means["passes"].max()) if len(means) else math.nan
        low, high = found.references.get(task, (0.0, 1.0))
        for arm in found.arms:
            own = means[means["arm"] == arm].sort_values("passes")
            places = np.searchsorted(own["passes"].to_numpy(float), shares * most, side="right") - 1
            values = own["mean"].to_numpy(float)
            values = np.append(values, math.nan)  # place -1: nothing yet
            curves[arm].append((values[places] - low) / (high - low))
    rows = [
        (arm, share, value)
        for arm, parts in curves.items()
        for share, value in zip(shares, np.mean(parts, axis=0), strict=True)
        if not math.isnan(value)
    ]
    return pd.DataFrame(rows, columns=["arm", "share", "mean"])
