"""Successive halving: trials compete at rungs, and few reach the full budget.

By rungs (Jamieson & Talwalkar 2016), in brackets (Li et al. 2018), and without barriers (Li et al.
2020).
"""

import bisect
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from pydantic import Field

from tuneparts.core.schema import Metric
from tuneparts.search.algorithms import base
from tuneparts.search.arm import Arm
from tuneparts.search.events import TrialId
from tuneparts.search.segment import ANY, Batch, Segment

_Judge: TypeAlias = Callable[[Sequence[float], int], bool]
"""Whether a trial passes a level, given its rewards (scores where larger is better) at this level
and those before, and its index. It is called once a trial, and remembers those that it judged."""


class _Rungs(base.Algorithm):
    """Trials that compete at rungs: after m, m r, m r^2, ... steps, and the full budget."""

    is_adaptive = True
    takes_points = True

    num_trials: int = Field(gt=0)
    min_steps: int = Field(gt=0)
    """Steps of the first rung, m."""
    reduction: int = Field(default=4, ge=2)
    """Reduction factor r: the best 1/r of a rung continue, to a rung r times longer."""

    def __init__(self, num_trials: int, **settings: Any) -> None:
        super().__init__(**{"num_trials": num_trials, **settings})

    def check(self, arm: Arm) -> None:
        if self.min_steps % arm.config.interval:
            raise ValueError(
                f"arms['{arm.name}'].algorithm.min_steps = {self.min_steps}: "
                f"`min_steps % interval == 0` must hold, but `interval` = {arm.config.interval}"
            )

    def _levels(self, arm: Arm) -> list[int]:
        factors = itertools.repeat(self.reduction)
        levels = itertools.accumulate(factors, int.__mul__, initial=self.min_steps)
        steps = arm.config.steps
        return [*itertools.takewhile(lambda level: level < steps, levels), steps]


class SuccessiveHalving(_Rungs):
    """Trials compete at rungs: the best 1/r of each, by the scores of all of it, continue.

    A trial waits at a rung until the scores that are missing cannot change whether it continues.
    `Asha` waits less, and lets more trials pass.
    """

    def __init__(self, num_trials: int, **settings: Any) -> None:
        super().__init__(num_trials, **settings)

    def cost(self, arm: Arm) -> base._Cost:
        spent = 0
        for own, levels in self._brackets(arm):
            counts = _sizes(len(own), reduction=self.reduction, num_rungs=len(levels))
            lengths = (end - start for start, end in itertools.pairwise([0, *levels]))
            spent += sum(map(int.__mul__, counts, lengths))
        return base._Cost(self.num_trials, spent, spent, arm.config.steps)

    def proposals(self, arm: Arm, seed: int, metric: Metric) -> base.Proposals:
        sign = 1.0 if metric.better(1.0, 0.0) else -1.0
        ladders: list[tuple[list[_Top], list[int]]] = []
        whole: dict[TrialId, Segment] = {}
        at: dict[TrialId, tuple[list[_Top], int]] = {}
        """Trial that runs -> the rungs of its bracket, and the number of its own."""
        run: list[Segment] = []
        stop: list[TrialId] = []
        for own, levels in self._brackets(arm):
            ladder: list[_Top] = []
            counts = _sizes(len(own), reduction=self.reduction, num_rungs=len(levels))
            for members, places in itertools.pairwise(counts):
                ladder.append(_Top(members, places, ladder[-1] if ladder else None))
            ladders.append((ladder, levels))
            for one in base._drawn_trials(arm, seed, own):
                whole[one.trial], at[one.trial] = one, (ladder, 0)
                run.append(base._stretch(one, number=0, bounds=(0, levels[0])))
        while at:
            results = yield Batch(tuple(run), tuple(stop), ANY)
            run, stop = [], []
            for trial, result in results.items():
                ladder, number = at.pop(trial)
                if number == len(ladder):
                    continue  # it has spent its budget
                reward = sign * result.score(metric)
                ladder[number].add(trial, reward)
                if not math.isfinite(reward) and result.failure is None:
                    stop.append(trial)
            for ladder, levels in ladders:
                for number, top in enumerate(ladder, start=1):
                    passed, failed = top.decide()
                    stop += failed
                    at.update(dict.fromkeys(passed, (ladder, number)))
                    bounds = levels[number - 1], levels[number]
                    run += [
                        base._stretch(whole[one], number=number, bounds=bounds) for one in passed
                    ]
        if stop:
            yield Batch((), tuple(stop))

    def _brackets(self, arm: Arm) -> list[tuple[range, list[int]]]:
        return [(range(self.num_trials), self._levels(arm))]


class Hyperband(SuccessiveHalving):
    """Successive halving in brackets that start at different rungs, side by side (Li et al. 2018).

    Many trials start at the lowest rung, and few with the whole budget, where early scores mislead.
    The trials of all brackets are shared out as by Li et al. (2018).
    """

    reduction: int = Field(default=3, ge=2)
    """Reduction factor r, as of successive halving."""

    def __init__(self, num_trials: int, **settings: Any) -> None:
        super().__init__(num_trials, **settings)

    def _brackets(self, arm: Arm) -> list[tuple[range, list[int]]]:
        levels = self._levels(arm)
        counts = _bracket_sizes(self.num_trials, len(levels), self.reduction)
        starts = itertools.accumulate(counts, initial=0)
        found = zip(starts, counts, range(len(levels)), strict=False)
        return [(range(first, first + n), levels[rung:]) for first, n, rung in found if n]


class Asha(_Rungs, base._Timed):
    """Successive halving without barriers: trials compete at rungs, and few reach the full budget.

    A trial continues from a rung when it is among the best 1/r of those that were judged there
    before it. Trials are judged in their order, each as soon as those before it have been; with
    asynchronous timing in the order in which they arrive, as Ray's `ASHAScheduler` does.
    More continue than in `SuccessiveHalving`, because early ones have few to compete with.
    """

    keeps_first_trials = True  # a trial is judged against those before it, however many come

    def __init__(self, num_trials: int, **settings: Any) -> None:
        super().__init__(num_trials, **settings)

    def cost(self, arm: Arm) -> base._Cost:
        """At most every trial runs in full; expected is the cost when scores come in no order."""
        alive, spent = float(self.num_trials), 0.0
        for start, end in itertools.pairwise([0, *self._levels(arm)]):
            spent += alive * (end - start)
            alive = _expected_to_pass(alive, self.reduction)
        steps = arm.config.steps
        return base._Cost(self.num_trials, self.num_trials * steps, round(spent), steps)

    def proposals(self, arm: Arm, seed: int, metric: Metric) -> base.Proposals:
        trials = base._drawn_trials(arm, seed, range(self.num_trials))
        levels = self._levels(arm)
        judges = [_Rung(self.reduction) for _ in levels[:-1]]
        yield from _judged(trials, levels, judges, metric, is_asynchronous=self.is_asynchronous)


def _sizes(num_trials: int, *, reduction: int, num_rungs: int) -> Iterator[int]:
    """Number of trials in each rung: a whole part 1/r of the rung before, and at least one."""
    count = num_trials
    for _ in range(num_rungs):
        yield count
        count = max(1, count // reduction)


def _bracket_sizes(num_trials: int, num_brackets: int, reduction: int) -> list[int]:
    """Share trials out between the brackets of Hyperband, the one with the lowest rung first.

    Bracket s of s_max + 1 gets a share in proportion to (s_max + 1) / (s + 1) r^s (Li et al. 2018,
    algorithm 1). What rounding leaves goes to the largest remainders.
    """
    weights = [num_brackets / (s + 1) * reduction**s for s in reversed(range(num_brackets))]
    shares = [num_trials * weight / sum(weights) for weight in weights]
    counts = [math.floor(share) for share in shares]
    by_remainder = sorted(range(num_brackets), key=lambda i: (counts[i] - shares[i], i))
    for i in by_remainder[: num_trials - sum(counts)]:
        counts[i] += 1
    return counts


class _Top:
    """The best of a rung, as far as they are known."""

    def __init__(self, members: int, places: int, below: "_Top | None" = None) -> None:
        self._members, self._places, self._below = members, places, below
        """Trials that arrive at most, trials that continue, and the rung that they come from."""
        self._arrived = 0
        self._ranked: list[tuple[float, Any]] = []
        """Minus the reward, and the trial; the best first."""
        self._decided: set[Any] = set()

    @property
    def _missing(self) -> int:
        below = self._below
        coming = self._members if below is None else len(below._ranked) + below._missing
        return min(self._members, coming) - self._arrived

    def add(self, trial: Any, reward: float) -> None:
        """Take the reward of a trial; one that is not finite has no place."""
        self._arrived += 1
        if math.isfinite(reward):
            bisect.insort(self._ranked, (-reward, trial))

    def decide(self) -> tuple[list[Any], list[Any]]:
        """List which pass and which do not, of those that no missing score can change."""
        sure = max(0, self._places - self._missing)
        best, worst = self._ranked[:sure], self._ranked[self._places :]
        passed = [trial for _, trial in best if trial not in self._decided]
        failed = [trial for _, trial in worst if trial not in self._decided]
        self._decided |= {*passed, *failed}
        return passed, failed


def _judged(
    trials: Sequence[Segment],
    levels: Sequence[int],
    judges: Sequence[_Judge],
    metric: Metric,
    *,
    is_asynchronous: bool,
) -> base.Proposals:
    """Run trials from level to level, as far as they pass; one that does not is stopped.

    At each level but the last trials are judged in their order, or as they arrive if asynchronous.
    Judges see finite scores only.
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
        run.append(base._stretch(whole[trial], number=level, bounds=bounds))
        if level < len(judges):
            waiting[level][trial] = None

    for trial in whole:
        send_to(trial, 0)
    while any(waiting):
        heads = tuple(next(iter(line)) for line in waiting if line)
        results = yield Batch(tuple(run), tuple(stop), ANY if is_asynchronous else heads)
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

    The first passes, and others not below the (1 - 1/r) quantile, interpolated, of those before.
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
