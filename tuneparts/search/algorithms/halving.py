"""Successive halving in whole rungs (Jamieson & Talwalkar 2016), and Hyperband (Li et al. 2018).

`asha` has the form without barriers.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from tuneparts.journal import TrialId
from tuneparts.schema import Metric
from tuneparts.search.algorithms.base import Algorithm, Proposals, drawn_trials, stretch
from tuneparts.search.segment import Batch, Result, Segment
from tuneparts.search.space import Dimension

if TYPE_CHECKING:  # an arm holds an algorithm
    from tuneparts.search.spec import Arm


class SuccessiveHalving(Algorithm):
    """Trials compete at rungs: the best 1/r of each, by the scores of all of it, continue.

    A rung is decided when all of its trials have ended, so workers wait for the slowest. `Asha`
    does not, and lets more trials pass.

    Example:
        >>> list(sizes(64, reduction=4, num_rungs=4))
        [64, 16, 4, 1]
    """

    is_adaptive = True
    takes_points = True

    num_trials: int = Field(gt=0)
    min_passes: int = Field(gt=0)
    """Passes of the first rung."""
    reduction: int = Field(default=4, ge=2)
    """Reduction factor r: the best 1/r of a rung continue, to a rung r times longer."""

    def trials_per_seed(self, space: Mapping[str, Dimension]) -> int:  # noqa: ARG002
        return self.num_trials

    def most_passes(self, arm: "Arm") -> int:
        levels = rungs(self.min_passes, self.reduction, arm.config.passes)
        return _cost(self.num_trials, levels, self.reduction)

    def sequential_passes(self, arm: "Arm") -> int:
        return arm.config.passes

    def check(self, arm: "Arm") -> None:
        check_rungs(self.min_passes, arm)

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:
        trials = drawn_trials(arm, seed, range(self.num_trials))
        levels = rungs(self.min_passes, self.reduction, arm.config.passes)
        yield from halved(trials, levels, self.reduction, metric)


class Hyperband(Algorithm):
    """Successive halving in brackets that start at different rungs, side by side (Li et al. 2018).

    Many trials start at the lowest rung, and few with the whole budget, where early scores mislead.
    """

    is_adaptive = True
    takes_points = True

    num_trials: int = Field(gt=0)
    """Trials of all brackets, shared out as by Li et al. (2018)."""
    min_passes: int = Field(gt=0)
    """Passes of the first rung of the widest bracket."""
    reduction: int = Field(default=3, ge=2)
    """Reduction factor r, as of successive halving."""

    def trials_per_seed(self, space: Mapping[str, Dimension]) -> int:  # noqa: ARG002
        return self.num_trials

    def most_passes(self, arm: "Arm") -> int:
        return sum(_cost(len(own), levels, self.reduction) for own, levels in self._brackets(arm))

    def sequential_passes(self, arm: "Arm") -> int:
        return arm.config.passes

    def check(self, arm: "Arm") -> None:
        check_rungs(self.min_passes, arm)

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:
        yield from beside(
            halved(drawn_trials(arm, seed, own), levels, self.reduction, metric)
            for own, levels in self._brackets(arm)
        )

    def _brackets(self, arm: "Arm") -> list[tuple[range, list[int]]]:
        """List the brackets that have trials: their numbers, and the rungs that they pass."""
        levels = rungs(self.min_passes, self.reduction, arm.config.passes)
        counts = bracket_sizes(self.num_trials, len(levels), self.reduction)
        ends = list(itertools.accumulate(counts))
        return [
            (range(end - count, end), levels[number:])
            for number, (count, end) in enumerate(zip(counts, ends, strict=True))
            if count
        ]


def rungs(min_passes: int, reduction: int, passes: int) -> list[int]:
    """List the budgets at which trials are compared: m, m r, m r^2, ... and the full one."""
    levels = []
    level = min_passes
    while level < passes:
        levels.append(level)
        level *= reduction
    return [*levels, passes]


def check_rungs(min_passes: int, arm: "Arm") -> None:
    """Refuse rungs that end in the middle of an interval."""
    if min_passes % arm.config.interval:
        raise ValueError(
            "a rung is a whole number of intervals: `min_passes % interval == 0` must hold, "
            f"but got {min_passes} % {arm.config.interval}"
        )


def sizes(num_trials: int, *, reduction: int, num_rungs: int) -> Iterator[int]:
    """Number of trials in each rung: a whole part 1/r of the rung before, and at least one."""
    count = num_trials
    for _ in range(num_rungs):
        yield count
        count = max(1, count // reduction)


def bracket_sizes(num_trials: int, num_brackets: int, reduction: int) -> list[int]:
    """Share trials out between the brackets of Hyperband, the one with the lowest rung first.

    Bracket s of s_max + 1 gets a share in proportion to (s_max + 1) / (s + 1) r^s (Li et al. 2018,
    algorithm 1), which makes brackets cost about the same. What rounding leaves goes to the largest
    remainders.

    Example:
        >>> bracket_sizes(143, 5, 3)  # their table 1
        [81, 34, 15, 8, 5]
    """
    ladder = reversed(range(num_brackets))
    weights = [num_brackets / (s + 1) * reduction**s for s in ladder]
    shares = [num_trials * weight / sum(weights) for weight in weights]
    counts = [math.floor(share) for share in shares]
    by_remainder = sorted(range(num_brackets), key=lambda i: (counts[i] - shares[i], i))
    for i in by_remainder[: num_trials - sum(counts)]:
        counts[i] += 1
    return counts


def halved(
    trials: Sequence[Segment], levels: Sequence[int], reduction: int, metric: Metric
) -> Proposals:
    """Run trials rung by rung; of each rung the best 1/r continue, however many failed."""
    alive, stopped = list(trials), list[TrialId]()
    counts = list(sizes(len(trials), reduction=reduction, num_rungs=len(levels)))
    for number, bounds in enumerate(itertools.pairwise([0, *levels])):
        alive = [stretch(one, number=number, bounds=bounds) for one in alive]
        results = yield Batch(tuple(alive), tuple(stopped))
        if number + 1 == len(levels):
            return
        scores = [results[one.trial].score(metric) for one in alive]
        kept = set(best(scores, counts[number + 1], metric))
        stopped = [
            one.trial
            for place, one in enumerate(alive)
            if place not in kept and results[one.trial].failure is None
        ]
        alive = [one for place, one in enumerate(alive) if place in kept]
        if not alive:
            if stopped:
                yield Batch((), tuple(stopped))
            return


def best(scores: Sequence[float], count: int, metric: Metric) -> list[int]:
    """Places of the best scores, ties to the first; those that are not finite are never among them.

    Example:
        >>> from tuneparts.schema import lookup
        >>> best([0.1, math.nan, 0.3, 0.3], 2, lookup("val/accuracy"))
        [2, 3]
    """
    sign = -1.0 if metric.better(1.0, 0.0) else 1.0
    finite = [place for place, score in enumerate(scores) if math.isfinite(score)]
    return sorted(finite, key=lambda place: (sign * scores[place], place))[:count]


def beside(parts: Iterable[Proposals]) -> Proposals:
    """Run generators of whole batches side by side, each as if it were alone.

    None of them waits for another, and none hears of another's trials.
    """
    left: dict[Proposals, dict[TrialId, None]] = {}
    """Generator -> trials of its batch that it has no result of."""
    results: dict[Proposals, dict[TrialId, Result]] = {}
    owner: dict[TrialId, Proposals] = {}
    run: list[Segment] = []
    stop: list[TrialId] = []

    def ask(part: Proposals, told: Mapping[TrialId, Result] | None) -> None:
        left.pop(part, None)
        try:
            batch = next(part) if told is None else part.send(told)
        except StopIteration:
            return
        run.extend(batch.run)
        stop.extend(batch.stop)
        owner.update((one.trial, part) for one in batch.run)
        results[part] = {}
        if batch.run:
            left[part] = dict.fromkeys(one.trial for one in batch.run)
        else:
            ask(part, {})

    for part in parts:
        ask(part, None)
    while left:
        heads = tuple(next(iter(trials)) for trials in left.values())
        told = yield Batch(tuple(run), tuple(stop), heads)
        run, stop = [], []
        for trial, result in told.items():
            part = owner[trial]
            results[part][trial] = result
            del left[part][trial]
            if not left[part]:
                ask(part, results[part])
    if run or stop:
        yield Batch(tuple(run), tuple(stop))


def _cost(num_trials: int, levels: Sequence[int], reduction: int) -> int:
    counts = sizes(num_trials, reduction=reduction, num_rungs=len(levels))
    stretches = itertools.pairwise([0, *levels])
    return sum(count * (end - start) for count, (start, end) in zip(counts, stretches, strict=True))
