"""Successive halving by whole rungs (Jamieson & Talwalkar 2016) and Hyperband (Li et al. 2018).

`asha` has the form without barriers.
"""

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from tuneparts.core.schema import Metric
from tuneparts.search.algorithms.base import Algorithm, Proposals, drawn_trials, stretch
from tuneparts.search.journal import TrialId
from tuneparts.search.segment import ANY, Batch, Result, Segment
from tuneparts.search.space import Dimension

if TYPE_CHECKING:  # an arm holds an algorithm
    from tuneparts.search.arm import Arm


class SuccessiveHalving(Algorithm):
    """Trials compete at rungs: the best 1/r of each, by the scores of all of it, continue.

    A trial waits at a rung until the scores that are missing cannot change whether it continues.
    `Asha` waits less, and lets more trials pass.

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
    """Run trials from rung to rung; of each rung the best 1/r continue, however many failed.

    Who continues is decided by the scores of a whole rung, but each trial is told as soon as the
    scores that are missing cannot change it. So the order in which trials end changes nothing.
    """
    sign = 1.0 if metric.better(1.0, 0.0) else -1.0
    whole = {one.trial: one for one in trials}
    counts = list(sizes(len(trials), reduction=reduction, num_rungs=len(levels)))
    ladder = [Top(members, places) for members, places in itertools.pairwise(counts)]
    at = dict.fromkeys(whole, 0)
    """Trial that runs -> number of its rung."""
    run = [stretch(one, number=0, bounds=(0, levels[0])) for one in trials]
    stop: list[TrialId] = []
    while at:
        results = yield Batch(tuple(run), tuple(stop), ANY)
        run, stop = [], []
        for trial, result in results.items():
            number = at.pop(trial)
            if number == len(ladder):
                continue  # it has spent its budget
            reward = sign * result.score(metric)
            ladder[number].add(trial, reward)
            if not math.isfinite(reward) and result.failure is None:
                stop.append(trial)
        for number, top in enumerate(ladder):
            passed, failed = top.decide()
            stop += failed
            at.update(dict.fromkeys(passed, number + 1))
            bounds = levels[number], levels[number + 1]
            run += [stretch(whole[one], number=number + 1, bounds=bounds) for one in passed]
            if number + 1 < len(ladder):
                ladder[number + 1].expect(top.most_passed)
    if stop:
        yield Batch((), tuple(stop))


class Top:
    """The best of a rung, as far as they are known.

    Example:
        >>> top = Top(members=4, places=2)
        >>> for name, reward in (("a", 0.9), ("b", 0.1), ("c", 0.7)):
        ...     top.add(name, reward)
        >>> top.decide()  # one is missing: it may be better than `c`, but not better than both
        (['a'], ['b'])
    """

    def __init__(self, members: int, places: int) -> None:
        """Begin a rung.

        Args:
            members: trials that arrive at most.
            places: trials that continue, if so many have a score.
        """
        self._members, self._places = members, places
        self._arrived = 0
        self._ranked: list[tuple[float, Any]] = []
        """Minus the reward, and the trial; the best first."""
        self._passed: dict[Any, bool] = {}
        """Trials that are decided."""

    @property
    def most_passed(self) -> int:
        """How many may have passed when all is decided."""
        return min(self._places, len(self._ranked) + self._members - self._arrived)

    def expect(self, members: int) -> None:
        """Hear that no more than so many will arrive."""
        self._members = min(self._members, members)

    def add(self, trial: Any, reward: float) -> None:
        """Take the reward of a trial; one that is not finite has no place."""
        self._arrived += 1
        if math.isfinite(reward):
            bisect.insort(self._ranked, (-reward, trial))

    def decide(self) -> tuple[list[Any], list[Any]]:
        """List who passes and who does not, of those that no missing score can change."""
        missing = self._members - self._arrived
        passed, failed = [], []
        for rank, (_, trial) in enumerate(self._ranked):
            if trial in self._passed:
                continue
            if rank + missing < self._places:
                passed.append(trial)
            elif rank >= self._places:
                failed.append(trial)
        self._passed |= dict.fromkeys(passed, True) | dict.fromkeys(failed, False)
        return passed, failed


def beside(parts: Iterable[Proposals]) -> Proposals:
    """Run generators that await any of their trials side by side, each as if it were alone."""
    owner: dict[TrialId, Proposals] = {}
    """Trial that runs -> generator that hears of it."""
    run: list[Segment] = []
    stop: list[TrialId] = []

    def take(part: Proposals, told: Mapping[TrialId, Result] | None) -> None:
        try:
            batch = next(part) if told is None else part.send(told)
        except StopIteration:
            return
        run.extend(batch.run)
        stop.extend(batch.stop)
        owner.update((one.trial, part) for one in batch.run)
        if part not in owner.values():
            take(part, {})

    for part in parts:
        take(part, None)
    while owner:
        told = yield Batch(tuple(run), tuple(stop), ANY)
        run, stop = [], []
        for trial, result in told.items():
            take(owner.pop(trial), {trial: result})
    if stop:
        yield Batch((), tuple(stop))


def _cost(num_trials: int, levels: Sequence[int], reduction: int) -> int:
    counts = sizes(num_trials, reduction=reduction, num_rungs=len(levels))
    stretches = itertools.pairwise([0, *levels])
    return sum(count * (end - start) for count, (start, end) in zip(counts, stretches, strict=True))
