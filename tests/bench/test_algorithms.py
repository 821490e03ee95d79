"""The bench of the algorithms: what it compares is the same where it should be."""

import math
from importlib import resources

import pytest

from tuneparts.bench import algorithms, functions
from tuneparts.bench.algorithms import (
    compared,
    function_cases,
    population_cases,
    recorded,
    regret_at,
    table_cases,
)


def test_the_functions_are_zero_at_their_optima() -> None:
    assert functions.branin([(3.14159265 + 5) / 15, 2.275 / 15]) == pytest.approx(0, abs=1e-6)
    best = [0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573]
    assert functions.hartmann6(best) == pytest.approx(0, abs=1e-6)
    assert functions.rosenbrock([0.75, 0.75, 0.75]) == 0
    for function, dims in functions.FUNCTIONS.values():
        assert function([0.4] * dims) > 0


def test_regret_is_that_of_the_best_trial_within_the_budget() -> None:
    path = [(2.0, 0.5), (4.0, 0.3), (9.0, 0.1)]
    assert [regret_at(path, budget) for budget in (1, 2, 5, 9)] == [0.5, 0.5, 0.3, 0.1]


def test_the_table_is_small_and_whole() -> None:
    file = resources.files("tuneparts.bench") / "tables" / algorithms.TABLE
    assert len(file.read_bytes()) < 200_000
    table = recorded()
    assert table.scores.shape == (102, 27)
    assert (table.passes[0], table.passes[-1]) == (9, 243)
    assert table.scores[:, -1].min() < 0.7 * table.scores[:, 0].min()


def test_asha_is_rays_to_the_last_decision() -> None:
    case = next(case for case in table_cases(quick=True) if case.name == "asha, ray")
    for seed in range(4):
        ours, theirs = case.ours(seed), case.theirs(seed)
        assert [regret for _, regret in ours][-1] == [regret for _, regret in theirs][-1]
        assert len(ours) == len(theirs)


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "qmc", "nsgaii"])
def test_one_trial_at_a_time_is_what_optuna_does(sampler: str) -> None:
    case = next(case for case in function_cases(quick=True) if case.name == sampler)
    assert case.ours(3) == case.theirs(3)


def test_a_row_has_both_sides_and_a_verdict() -> None:
    case = next(case for case in table_cases(quick=True) if case.name == "halving, optuna")
    rows = list(compared(case))
    assert [row["budget"] for row in rows] == [0.25, 0.5, 1.0]
    for row in rows:
        assert row["low"] <= row["difference"] <= row["high"]
        assert row["verdict"] in {"equal", "better", "not worse", "worse", "undecided"}
        assert min(row["ours"], row["theirs"], row["random"]) >= 0


def test_populations_begin_with_the_same_members_and_can_be_repeated() -> None:
    (case,) = population_cases(quick=True)
    ours, theirs, chance = (side(0) for side in (case.ours, case.theirs, case.random))
    assert ours[0] == theirs[0] == chance[0]
    assert [spent for spent, _ in ours] == [spent for spent, _ in theirs]
    for path in (ours, theirs, chance):
        losses = [loss for _, loss in path]
        assert losses == sorted(losses, reverse=True)
    assert (case.ours(0), case.theirs(0)) == (ours, theirs)


def test_no_point_is_good_from_the_start_to_the_end() -> None:
    def after(points) -> float:
        loss = 1.0
        for number, point in enumerate(points):
            loss = functions.trained(loss, point, number / 10)
        return loss

    moving = after([(0.9 - 0.06 * i, 0.3 + 0.06 * i) for i in range(10)])
    grid = [(x / 10, y / 10) for x in range(11) for y in range(11)]
    assert moving == pytest.approx(math.exp(-5))
    assert min(after([point] * 10) for point in grid) > 5 * moving
