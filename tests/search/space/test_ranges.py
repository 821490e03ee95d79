"""Numbers of a space: inside their bounds, on their steps, and drawn as Optuna draws them."""

import json
import math

import numpy as np
import optuna
import pytest
from scipy import stats

from tuneparts.search.space import Dimension, Int, LogNormal, Normal, Uniform


def test_uniform_draws_are_uniform() -> None:
    rng = np.random.default_rng(0)
    draws = [Uniform(low=2.0, high=5.0).sample(rng) for _ in range(500)]
    assert stats.kstest(draws, stats.uniform(2, 3).cdf).pvalue > 0.001
    rng = np.random.default_rng(0)
    logs = np.log10([Uniform(low=1e-4, high=1.0, log=True).sample(rng) for _ in range(500)])
    assert stats.kstest(logs, stats.uniform(-4, 4).cdf).pvalue > 0.001


NUMBERS = [
    Uniform(low=-1.0, high=2.0),
    Uniform(low=1e-4, high=1.0, log=True),
    Uniform(low=0.1, high=0.7, step=0.1),
    Uniform(low=-0.3, high=0.3, step=0.15),
    Int(low=0, high=9),
    Int(low=16, high=256, step=16),
    Int(low=1, high=64, log=True),
    Normal(mean=0.5, std=0.2),
    Normal(mean=0.0, std=1.0, low=-0.5, high=3.0),
    LogNormal(mean=math.log(1e-3), std=1.0),
    LogNormal(mean=0.0, std=2.0, high=4.0),
]


def draws(dim: Dimension, number: int = 400) -> list:
    rng = np.random.default_rng(1)
    return [dim.sample(rng) for _ in range(number)]


def named(dim: Dimension) -> str:
    return repr(dim)


@pytest.mark.parametrize("dim", NUMBERS, ids=named)
def test_draws_and_what_is_near_them_lie_inside_and_on_the_steps(dim: Dimension) -> None:
    rng = np.random.default_rng(2)
    for value in draws(dim, 200):
        near = dim.perturb(value, rng)
        assert dim.contains(value)
        assert dim.contains(near)
        for number in (value, near):
            assert type(number) is (int if isinstance(dim, Int) else float)
            step = getattr(dim, "step", None)
            low, high = getattr(dim, "low", None), getattr(dim, "high", None)
            assert low is None or low <= number
            assert high is None or number <= high
            if step is not None:
                assert (number - low) / step == pytest.approx(round((number - low) / step))


@pytest.mark.parametrize("dim", NUMBERS, ids=named)
def test_numbers_are_drawn_as_optuna_draws_them(dim: Dimension) -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=3))
    distribution = dim.distribution()
    theirs = [dim.decoded(study.ask({"x": distribution}).params["x"]) for _ in range(400)]
    assert stats.ks_2samp(draws(dim), theirs).pvalue > 0.001
    assert all(dim.contains(value) for value in theirs)


@pytest.mark.parametrize("dim", NUMBERS, ids=named)
def test_a_number_is_the_same_after_a_way_through_optuna_and_json(dim: Dimension) -> None:
    for value in draws(dim, 50):
        assert dim.decoded(dim.encoded(value)) == pytest.approx(value, rel=1e-9)
        assert dim.distribution()._contains(dim.encoded(value))
    again = Dimension.made_from(json.loads(dim.model_dump_json()))
    assert again == dim
    assert draws(again, 5) == draws(dim, 5)


@pytest.mark.parametrize(
    ("dim", "expected"),
    [
        (Uniform(low=0.1, high=0.4, step=0.1), (0.1, 0.2, 0.3, 0.4)),
        (Int(low=1, high=7, step=3), (1, 4, 7)),
        (Int(low=0, high=2), (0, 1, 2)),
        (Int(low=0, high=5000), None),
        (Int(low=1, high=8, log=True), None),
        (Uniform(low=0, high=1), None),
        (Normal(mean=0, std=1), None),
    ],
    ids=named,
)
def test_a_grid_is_had_of_few_steps(dim: Dimension, expected) -> None:
    assert dim.grid() == expected
    assert expected is None or set(draws(dim)) == set(expected)


def test_a_normal_number_has_its_mean_deviation_and_cuts() -> None:
    whole, cut = Normal(mean=3.0, std=0.5), Normal(mean=3.0, std=0.5, low=2.8, high=3.9)
    assert stats.kstest(draws(whole), stats.norm(3, 0.5).cdf).pvalue > 0.001
    assert stats.kstest(draws(cut), stats.truncnorm(-0.4, 1.8, 3, 0.5).cdf).pvalue > 0.001
    logs = np.log(draws(LogNormal(mean=-2.0, std=0.7)))
    assert stats.kstest(logs, stats.norm(-2, 0.7).cdf).pvalue > 0.001


def test_a_whole_number_moves_at_least_one_step() -> None:
    rng, dim = np.random.default_rng(0), Int(low=1, high=8)
    assert {dim.perturb(2, rng) for _ in range(20)} == {1, 3}
    assert {dim.perturb(8, rng) for _ in range(20)} == {6, 8}
    steps = Uniform(low=0.0, high=1.0, step=0.25)
    assert {steps.perturb(0.5, rng) for _ in range(20)} == {0.25, 0.75}


@pytest.mark.parametrize(
    ("cls", "fields", "law"),
    [
        (Int, {"low": 3, "high": 3}, "`low < high` must hold"),
        (Uniform, {"low": -1, "high": 8, "log": True}, "`low > 0` must hold for `log=True`"),
        (Int, {"low": 16, "high": 250, "step": 16}, "write `high=240`"),
        (Uniform, {"low": 0, "high": 1, "step": 0.3}, "write `high=0.9`"),
        (Uniform, {"low": 0.1, "high": 1, "step": 0.1, "log": True}, "`log=True` or a `step`"),
        (Uniform, {"low": 0, "high": math.inf}, "both finite"),
        (Normal, {"mean": 0, "std": 1, "low": 2, "high": 1}, "`low < high` must hold"),
        (Normal, {"mean": 0, "std": 1, "low": 40}, "five standard deviations"),
        (LogNormal, {"mean": 0, "std": 1, "low": 0}, "`low > 0` must hold"),
    ],
)
def test_a_range_that_cannot_be_meant_is_refused(cls, fields, law: str) -> None:
    with pytest.raises(ValueError, match=law):
        cls(**fields)


@pytest.mark.parametrize("value", ["a", None, True, math.nan, math.inf, 1.5, -1, 12, [1]])
def test_what_is_not_of_a_range_is_not_contained(value) -> None:
    assert not Int(low=0, high=9).contains(value)
    assert Int(low=0, high=9).contains(3.0)
