"""The decisions of successive halving and population-based training, as pure functions."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tuneparts.journal import TrialId
from tuneparts.search.segment import Segment
from tuneparts.search.space import Dimension, Value


def stretch(
    whole: Segment, *, number: int, bounds: tuple[int, int], donor: TrialId | None = None
) -> Segment:
    """One round of a trial: from and until so many passes."""
    return dataclasses.replace(whole, round=number, start=bounds[0], until=bounds[1], donor=donor)


def rungs(min_passes: int, reduction: int, passes: int) -> list[int]:
    """Budgets at which trials are compared: min, min r, min r^2, ... and the full one."""
    levels = []
    level = min_passes
    while level < passes:
        levels.append(level)
        level *= reduction
    return [*levels, passes]


def promoted(
    scores: Sequence[float], reduction: int, *, better: Callable[[float, float], bool]
) -> list[bool]:
    """Which trials of a rung go on, decided one after the other (Li et al. 2020).

    A trial goes on when it is not worse than the (1 - 1/reduction) quantile, linearly
    interpolated, of the trials before it; the first always does. This is what Ray's
    asynchronous rule gives when trials arrive in order. A decision depends on earlier trials
    only, so a rung can run in any order and on any number of workers.
    """
    larger_is_better = better(1.0, 0.0)
    kept = []
    rewards = np.array(scores, dtype=float) * (1 if larger_is_better else -1)
    for i, reward in enumerate(rewards):
        before = rewards[:i]
        kept.append(i == 0 or bool(reward >= np.percentile(before, (1 - 1 / reduction) * 100)))
    return kept


def exploit(
    scores: Mapping[int, float],
    *,
    quantile: float,
    better: Callable[[float, float], bool],
    rng: np.random.Generator,
) -> dict[int, int]:
    """Loser -> donor: the worst quantile copies from the best (Jaderberg et al. 2017).

    Ties are broken by index. With fewer than two trials left nothing is copied.
    """
    sign = -1.0 if better(1.0, 0.0) else 1.0
    ranked = sorted(scores, key=lambda i: (sign * scores[i], i))
    count = min(round(len(ranked) * quantile) or 1, len(ranked) // 2)
    if count == 0:
        return {}
    best, worst = ranked[:count], ranked[-count:]
    return {loser: best[int(rng.integers(count))] for loser in sorted(worst)}


def explore(
    values: Mapping[str, Value],
    space: Mapping[str, Dimension],
    *,
    resample: float,
    rng: np.random.Generator,
) -> dict[str, Value]:
    """The donor's values, each perturbed or drawn anew."""
    return {
        path: dim.sample(rng) if rng.random() < resample else dim.perturb(values[path], rng)
        for path, dim in space.items()
    }
