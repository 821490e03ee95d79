"""Successive halving and Hyperband against obvious versions, and what they say that they cost."""

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.test_algorithms import ACCURACY, NLL, batches, index, rounds, scrambled
from tuneparts.search.algorithms.halving import (
    Hyperband,
    SuccessiveHalving,
    _bracket_sizes,
    _sizes,
    _Top,
)
from tuneparts.search.segment import Batch, Result, Segment
from tuneparts.search.space import Uniform

SPACE = {"x": Uniform(low=0.0, high=1.0)}


def spent(found: list[Batch]) -> int:
    return sum(one.until - one.start for batch in found for one in batch.run)


@pytest.mark.parametrize("metric", [ACCURACY, NLL], ids=["up", "down"])
def test_exactly_the_best_of_a_rung_go_on(null_arm, metric) -> None:
    algorithm = SuccessiveHalving(num_trials=9, min_steps=2, reduction=2)
    arm = null_arm("halving", algorithm=algorithm, space=SPACE)
    found = rounds(batches(arm, scrambled, metric=metric))
    sign = 1 if metric is ACCURACY else -1
    alive = set(range(9))
    for batch, count, level in zip(found, (9, 4, 2), (2, 4, 8), strict=True):
        assert {index(one) for one in batch.run} == alive
        assert {one.until for one in batch.run} == {level}
        ranked = sorted(batch.run, key=lambda one: -sign * scrambled(one))
        alive = {index(one) for one in ranked[: count // 2]}
    assert spent(found) == arm.cost.most == 9 * 2 + 4 * 2 + 2 * 4


def test_trials_that_failed_leave_their_place_to_the_next_best(null_arm) -> None:
    algorithm = SuccessiveHalving(num_trials=8, min_steps=2, reduction=2)
    arm = null_arm("halving", algorithm=algorithm, space=SPACE)

    def half_fail(one: Segment) -> float | None:
        return None if index(one) < 4 and one.start == 0 else scrambled(one)

    first, second, third = rounds(batches(arm, half_fail))
    assert [len(b.run) for b in (first, second, third)] == [8, 4, 2]
    assert [index(one) for one in second.run] == [4, 5, 6, 7]
    assert second.stop == ()


def decided(rewards: dict[str, float], members: int, places: int) -> tuple[set[str], set[str]]:
    """Who is surely in and surely out, by trying all that the missing scores can be."""
    missing = members - len(rewards)
    bounds = [-math.inf, *sorted({*rewards.values()}), math.inf]
    gaps = [(low + high) / 2 for low, high in itertools.pairwise([-9.0, *bounds[1:-1], 9.0])]
    winners = []
    for number in range(missing + 1):
        for rest in itertools.combinations_with_replacement(gaps, number):
            whole = {**rewards, **{f"missing {i}": r for i, r in enumerate(rest)}}
            winners.append(set(sorted(whole, key=lambda name: -whole[name])[:places]))
    inside = set(rewards).intersection(*winners)
    return inside, {name for name in rewards if all(name not in one for one in winners)}


@given(
    st.lists(st.floats(-1, 1, allow_subnormal=False), unique=True, max_size=5),
    st.integers(0, 3),
    st.integers(1, 4),
)
def test_a_trial_is_told_as_soon_as_nothing_can_change_it(rewards, missing, places) -> None:
    members = len(rewards) + missing
    top = _Top(members, places)
    named = {f"t{i}": reward for i, reward in enumerate(rewards)}
    for name, reward in named.items():
        top.add(name, reward)
    passed, failed = top.decide()
    assert (set(passed), set(failed)) == decided(named, members, places)
    assert top.decide() == ([], [])


def test_nobody_waits_for_a_trial_that_cannot_change_who_goes_on(null_arm) -> None:
    algorithm = SuccessiveHalving(num_trials=8, min_steps=2, reduction=4)
    arm = null_arm("halving", algorithm=algorithm, space=SPACE)
    proposals = algorithm.proposals(arm, 0, ACCURACY)
    first = next(proposals)
    started: list[Segment] = []
    for one in first.run[:7]:  # the last one is slow
        started += proposals.send({one.trial: Result({"val/accuracy": -index(one) / 10})}).run
    assert [(index(one), one.start) for one in started] == [(0, 2)]


def test_hyperband_is_successive_halving_in_each_bracket(null_arm) -> None:
    algorithm = Hyperband(num_trials=19, min_steps=2, reduction=2)
    arm = null_arm("hyperband", algorithm=algorithm, space=SPACE)
    found = rounds(batches(arm, scrambled))
    start = 0
    work: list[Any] = [one for batch in found for one in batch.run]
    for count, levels in zip(_bracket_sizes(19, 3, 2), ([2, 4, 8], [4, 8], [8]), strict=True):
        own = {i: i for i in range(start, start + count)}
        for size, level in zip(
            _sizes(count, reduction=2, num_rungs=len(levels)), levels, strict=True
        ):
            there = [one for one in work if index(one) in own and one.until == level]
            assert len(there) == size
            ranked = sorted(there, key=lambda one: -scrambled(one))
            own = {index(one): 0 for one in ranked[: size // 2 or 1]}
        start += count
    assert spent(found) == arm.cost.most
