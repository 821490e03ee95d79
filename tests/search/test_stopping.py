"""Stopping rules against obvious versions, and population-based bandits on gains that are known."""

import math
import statistics

import numpy as np
import pytest

from tests.search.test_algorithms import ACCURACY, NLL, batches, index, scrambled
from tuneparts.search.algorithms import MedianStopping, Pb2, Pbt, PercentileStopping
from tuneparts.search.algorithms.pb2 import gained, highest_bounds, numeric, units
from tuneparts.search.algorithms.pbt import Round
from tuneparts.search.segment import Batch
from tuneparts.search.space import Choice, Uniform
from tuneparts.testing import AlgorithmContract

SPACE = {"x": Uniform(low=0.1, high=1.0, log=True), "seconds": Choice(options=(0.0, 0.5, 2.0))}


def reached(found: list[Batch]) -> dict[int, int]:
    """Passes that each trial got to."""
    return {index(one): one.until for batch in found for one in batch.run}


def slowly(count: int, levels: list[int], sign: int, goes_on) -> dict[int, int]:
    """Judge trial after trial: each to its end, against those before it that were as far."""
    paths: dict[int, list[float]] = {}
    for number in range(count):
        own: list[float] = []
        for place, level in enumerate(levels):
            own.append(sign * scrambled_at(number, level))
            if level == levels[-1]:
                break
            others = [path[: place + 1] for path in paths.values() if len(path) > place]
            if len(others) >= 5 and not goes_on(own, others):
                break
        paths[number] = own
    return {number: levels[len(path) - 1] for number, path in paths.items()}


def scrambled_at(number: int, level: int) -> float:
    return math.sin(37 * number + 11 * level + 1)


@pytest.mark.parametrize("metric", [ACCURACY, NLL], ids=["up", "down"])
def test_the_median_rule_compares_the_best_so_far_with_running_means(null_arm, metric) -> None:
    arm = null_arm("a", algorithm=MedianStopping(num_trials=40, every=2), space=SPACE)
    expected = slowly(
        40,
        [2, 4, 6, 8],
        1 if metric is ACCURACY else -1,
        lambda own, others: max(own) >= statistics.median(map(statistics.fmean, others)),
    )
    found = reached(batches(arm, scrambled, metric=metric))
    assert found == expected
    assert len(set(found.values())) > 1


@pytest.mark.parametrize("metric", [ACCURACY, NLL], ids=["up", "down"])
def test_the_best_share_of_each_point_goes_on(null_arm, metric) -> None:
    algorithm = PercentileStopping(num_trials=40, every=2, min_passes=4, keep=0.5)
    arm = null_arm("a", algorithm=algorithm, space=SPACE)
    expected = slowly(
        40,
        [4, 6, 8],
        1 if metric is ACCURACY else -1,
        lambda own, others: max(own) >= statistics.median(path[-1] for path in others),
    )
    assert reached(batches(arm, scrambled, metric=metric)) == expected


@pytest.mark.parametrize("fields", [{"every": 3}, {"every": 2, "min_passes": 3}])
def test_trials_are_judged_between_intervals(null_arm, fields) -> None:
    with pytest.raises(ValueError, match=r"% interval == 0` must hold, but got 3 % 2"):
        null_arm("a", algorithm=MedianStopping(num_trials=4, **fields), space=SPACE)


class TestMedianStopping(AlgorithmContract):
    algorithm = MedianStopping(num_trials=12, every=4, min_trials=3)


class TestFreeMedianStopping(AlgorithmContract):
    algorithm = MedianStopping(num_trials=12, every=4, min_trials=3, timing="free")


class TestPercentileStopping(AlgorithmContract):
    algorithm = PercentileStopping(num_trials=12, every=4, min_passes=8, min_trials=2)


class TestPb2(AlgorithmContract):
    algorithm = Pb2(population=4, num_rounds=4)
    scores = AlgorithmContract.scores[:2]


def test_gains_are_counted_from_the_weights_that_a_round_began_with() -> None:
    scales = numeric({"x": Uniform(low=0.0, high=2.0), "kind": Choice(options=("a", "b"))})
    assert list(scales) == ["x"]
    rounds = [
        Round({0: {"x": 0.0}, 1: {"x": 1.0}}, {0: 0.5, 1: 0.1}, {}),
        Round({0: {"x": 0.0}, 1: {"x": 2.0}}, {0: 0.6, 1: 0.9}, {1: 0}),
        Round({0: {"x": 0.0}, 1: {"x": 2.0}}, {0: float("nan"), 1: 1.0}, {}),
    ]
    rows, gains = gained(rounds, scales)
    assert rows.tolist() == [[1.0, 0.0], [1.0, 1.0], [2.0, 1.0]]
    assert gains == pytest.approx([0.1, 0.4, 0.1])
    assert units({"x": 0.5}, scales) == [0.25]


def test_the_bound_is_high_where_gains_were_and_two_that_choose_keep_apart() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=40)
    rows = np.column_stack([rng.integers(1, 5, size=40).astype(float), x])
    gains = 1 - 4 * (x - 0.7) ** 2 + 0.01 * rng.standard_normal(40)
    places = np.linspace(0, 1, 101)
    candidates = np.column_stack([np.full(101, 5.0), places])
    first, second = highest_bounds(rows, gains, candidates, 2)
    assert places[first] == pytest.approx(0.7, abs=0.15)
    assert first != second


def test_bandits_find_a_better_value_than_small_steps_from_a_bad_start(null_arm) -> None:
    """Each round gains the more, the nearer x is to 0.7, and most of the space is far from it."""

    def learnt(algorithm: Pbt, seed: int) -> float:
        arm = null_arm("a", algorithm=algorithm, space={"x": Uniform(low=0.0, high=10.0)})
        totals = dict.fromkeys(range(8), 0.0)

        def score(one) -> float:
            if one.donor is not None:
                totals[index(one)] = before[one.donor.index]
            totals[index(one)] += np.exp(-((one.config["x"] - 7) ** 2) / 2)
            if index(one) == 7:
                before.update(totals)
            return totals[index(one)]

        before = dict(totals)
        batches(arm, score, seed=seed)
        return max(totals.values())

    seeds = range(6)
    small = {"population": 8, "num_rounds": 4, "quantile": 0.25, "resample": 0.0}
    bandit = np.mean([learnt(Pb2(**small), seed) for seed in seeds])
    assert bandit > np.mean([learnt(Pbt(**small), seed) for seed in seeds])
