"""Successive halving: trials compete at rungs, and few reach the full budget.

By whole rungs (Jamieson & Talwalkar 2016), in brackets (Hyperband, Li et al. 2018), and without
barriers (ASHA, Li et al. 2020).
"""

import bisect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from pydantic import Field

from tuneparts.core.schema import Metric
from tuneparts.search.algorithms.base import (
    Algorithm,
    Cost,
    Proposals,
    Timed,
    drawn_trials,
    stretch,
)
from tuneparts.search.events import TrialId
from tuneparts.search.segment import ANY, Batch, Result, Segment

if TYPE_CHECKING:  # an arm holds an algorithm
    from tuneparts.search.arm import Arm

_Judge: TypeAlias = Callable[[Sequence[float], int], bool]
"""Whether a trial passes a level, given its rewards (scores where larger is better) at this level
and those before, and its index. It is called once a trial, and remembers those that it judged."""


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

    def cost(self, arm: "Arm") -> Cost:
        spent = 0
        for own, levels in self._brackets(arm):
            counts = sizes(len(own), reduction=self.reduction, num_rungs=len(levels))
            lengths = (end - start for start, end in itertools.pairwise([0, *levels]))
            spent += sum(map(int.__mul__, counts, lengths))
        return Cost(self.num_trials, spent, spent, arm.config.passes)

    def check(self, arm: "Arm") -> None:
        _check_rungs(self.min_passes, arm)

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:
        yield from _beside(
            _halved(drawn_trials(arm, seed, own), levels, self.reduction, metric)
            for own, levels in self._brackets(arm)
        )

    def _brackets(self, arm: "Arm") -> list[tuple[range, list[int]]]:
        """List the brackets that have trials: their numbers, and the rungs that they pass."""
        levels = rungs(self.min_passes, self.reduction, arm.config.passes)
        counts = bracket_sizes(self.num_trials, len(levels), self.reduction)
        ends = itertools.accumulate(counts)
        return [
            (range(end - count, end), levels[number:])
            for number, (count, end) in enumerate(zip(counts, ends, strict=True))
            if count
        ]


class SuccessiveHalving(Hyperband):
    """Trials compete at rungs: the best 1/r of each, by the scores of all of it, continue.

    A trial waits at a rung until the scores that are missing cannot change whether it continues.
    `Asha` waits less, and lets more trials pass.

    Example:
        >>> list(sizes(64, reduction=4, num_rungs=4))
        [64, 16, 4, 1]
    """

    num_trials: int = Field(gt=0)
    min_passes: int = Field(gt=0)
    """Passes of the first rung."""
    reduction: int = Field(default=4, ge=2)
    """Reduction factor r: the best 1/r of a rung continue, to a rung r times longer."""

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:
        ((own, levels),) = self._brackets(arm)
        yield from _halved(drawn_trials(arm, seed, own), levels, self.reduction, metric)

    def _brackets(self, arm: "Arm") -> list[tuple[range, list[int]]]:
        return [(range(self.num_trials), rungs(self.min_passes, self.reduction, arm.config.passes))]


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

    def cost(self, arm: "Arm") -> Cost:
        """The most is every trial in full: when each is better than all before it, all pass.

        Expected is the cost when scores come in no order.
        """
        passes = arm.config.passes
        alive, spent = float(self.num_trials), 0.0
        for start, end in itertools.pairwise([0, *rungs(self.min_passes, self.reduction, passes)]):
            spent += alive * (end - start)
            alive = _expected_to_pass(alive, self.reduction)
        return Cost(self.num_trials, self.num_trials * passes, round(spent), passes)

    def check(self, arm: "Arm") -> None:
        _check_rungs(self.min_passes, arm)

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:
        trials = drawn_trials(arm, seed, range(self.num_trials))
        levels = rungs(self.min_passes, self.reduction, arm.config.passes)
        judges = [_Rung(self.reduction) for _ in levels[:-1]]
        yield from judged(trials, levels, judges, metric, is_free=self.is_free)


def rungs(min_passes: int, reduction: int, passes: int) -> list[int]:
    """List the budgets at which trials are compared: m, m r, m r^2, ... and the full one."""
    levels = itertools.accumulate(itertools.repeat(reduction), int.__mul__, initial=min_passes)
    return [*itertools.takewhile(lambda level: level < passes, levels), passes]


def _check_rungs(min_passes: int, arm: "Arm") -> None:
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
    weights = [num_brackets / (s + 1) * reduction**s for s in reversed(range(num_brackets))]
    shares = [num_trials * weight / sum(weights) for weight in weights]
    counts = [math.floor(share) for share in shares]
    by_remainder = sorted(range(num_brackets), key=lambda i: (counts[i] - shares[i], i))
    for i in by_remainder[: num_trials - sum(counts)]:
        counts[i] += 1
    return counts


def _halved(
    trials: Sequence[Segment], levels: Sequence[int], reduction: int, metric: Metric
) -> Proposals:
    """Run trials from rung to rung; of each rung the best 1/r continue, however many failed.

    The scores of a whole rung decide which continue, but each does as soon as the scores that are
    missing cannot change it. So the order in which trials end changes nothing.
    """
    sign = 1.0 if metric.better(1.0, 0.0) else -1.0
    whole = {one.trial: one for one in trials}
    counts = sizes(len(trials), reduction=reduction, num_rungs=len(levels))
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

    Args:
        members: trials that arrive at most.
        places: trials that continue, if so many have a score.

    Example:
        >>> top = Top(members=4, places=2)
        >>> for name, reward in (("a", 0.9), ("b", 0.1), ("c", 0.7)):
        ...     top.add(name, reward)
        >>> top.decide()  # one is missing: it may be better than `c`, but not better than both
        (['a'], ['b'])
    """

    def __init__(self, members: int, places: int) -> None:
        self._members, self._places = members, places
        self._arrived = 0
        self._ranked: list[tuple[float, Any]] = []
        """Minus the reward, and the trial; the best first."""
        self._decided: set[Any] = set()

    @property
    def most_passed(self) -> int:
        """How many may have passed when all is decided."""
        return min(self._places, len(self._ranked) + self._members - self._arrived)

    def expect(self, members: int) -> None:
        """Lower the number of trials that arrive at most."""
        self._members = min(self._members, members)

    def add(self, trial: Any, reward: float) -> None:
        """Take the reward of a trial; one that is not finite has no place."""
        self._arrived += 1
        if math.isfinite(reward):
            bisect.insort(self._ranked, (-reward, trial))

    def decide(self) -> tuple[list[Any], list[Any]]:
        """List which pass and which do not, of those that no missing score can change."""
        missing = self._members - self._arrived
        passed, failed = [], []
        for rank, (_, trial) in enumerate(self._ranked):
            if trial in self._decided:
                continue
            if rank + missing < self._places:
                passed.append(trial)
            elif rank >= self._places:
                failed.append(trial)
        self._decided |= {*passed, *failed}
        return passed, failed


def _beside(parts: Iterable[Proposals]) -> Proposals:
    """Run generators that await any of their trials side by side, each as if it were alone."""
    owner: dict[TrialId, Proposals] = {}
    """Trial that runs -> generator that proposed it."""
    run: list[Segment] = []
    stop: list[TrialId] = []

    def take(part: Proposals, results: Mapping[TrialId, Result] | None) -> None:
        try:
            batch = next(part) if results is None else part.send(results)
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
        results = yield Batch(tuple(run), tuple(stop), ANY)
        run, stop = [], []
        for trial, result in results.items():
            take(owner.pop(trial), {trial: result})
    if stop:
        yield Batch((), tuple(stop))


def judged(
    trials: Sequence[Segment],
    levels: Sequence[int],
    judges: Sequence[_Judge],
    metric: Metric,
    *,
    is_free: bool,
) -> Proposals:
    """Run trials from level to level, as far as they pass; one that does not is stopped.

    At each level trials are judged in their order, each as soon as those before it have been, and
    there is no barrier. With free timing they are judged in the order in which they arrive. A trial
    without a finite score does not pass, and judges do not see it. There is a judge for each level
    but the last, which is the budget.
    """
    sign = 1.0 if metric.better(1.0, 0.0) else -1.0
    whole = {one.trial: one for one in trials}
    waiting: list[dict[TrialId, None]] = [{} for _ in judges]
    """At each level the trials that are to be judged, in order."""
    rewards: dict[TrialId, list[float]] = {trial: [] for trial in whole}
    run: list[Segment] = []
    stop: list[TrialId] = []

    def send_to(trial: TrialId, level: int) -> None:
        bounds = (levels[level - 1] if level else 0), levels[level]
        run.append(stretch(whole[trial], number=level, bounds=bounds))
        if level < len(judges):
            waiting[level][trial] = None

    for trial in whole:
        send_to(trial, 0)
    while any(waiting):
        heads = tuple(next(iter(line)) for line in waiting if line)
        results = yield Batch(tuple(run), tuple(stop), ANY if is_free else heads)
        run, stop = [], []
        for trial, result in results.items():
            level = len(rewards[trial])
            if level == len(judges):
                continue  # it has spent its budget
            del waiting[level][trial]
            if result.failure is not None:
                continue
            rewards[trial].append(sign * result.score(metric))
            if math.isfinite(rewards[trial][-1]) and judges[level](rewards[trial], trial.index):
                send_to(trial, level + 1)
            else:
                stop.append(trial)
    if run or stop:
        yield Batch(tuple(run), tuple(stop))


class _Rung:
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


@cache
def _expected_to_pass(count: float, reduction: int) -> float:
    """How many of so many trials pass a rung on average, when scores come in no order.

    A new score falls into each of the k + 1 gaps between the k before it equally often, and
    passes in about k - (1 - 1/r)(k - 1) of them.
    """
    quantile = 1 - 1 / reduction
    gaps = [(k - quantile * (k - 1)) / (k + 1) for k in range(1, max(1, round(count)))]
    return min(count, 1 + sum(gaps))


def promoted(
    scores: Sequence[float], reduction: int, *, better: Callable[[float, float], bool]
) -> list[bool]:
    """Decide which trials of a rung of `Asha` continue, given their scores in order.

    This is what Ray's asynchronous rule gives when trials arrive in this order, except that a score
    that is not finite does not continue, and the others are not compared with it.
    """
    rung = _Rung(reduction)
    rewards = np.array(scores, dtype=float) * (1 if better(1.0, 0.0) else -1)
    return [bool(np.isfinite(reward)) and rung([float(reward)]) for reward in rewards]
