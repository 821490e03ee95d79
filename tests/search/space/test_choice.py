"""Choices: of values, of parts of configs, and of parts with dimensions inside."""

import json

import numpy as np
import optuna
import pytest
from scipy import stats

from tuneparts.core.errors import TunepartsError
from tuneparts.hypers import Hyper
from tuneparts.search.algorithms.sampler import _parameters, _suggested
from tuneparts.search.space import Choice, Dimension, Int, Uniform
from tuneparts.training.config import Adam, Sgd

MOMENTUM = Uniform(low=0, high=0.9)
SGD = {"kind": "sgd", "lr": Uniform(low=1e-3, high=1.0, log=True), "momentum": MOMENTUM}
ADAM = {"kind": "adam", "lr": Uniform(low=1e-5, high=1e-2, log=True)}
NESTED = Choice(options={"sgd": SGD, "adam": ADAM})
DEEP = Choice(
    options={
        "one": {"a": 1, "b": (Int(low=1, high=3), 7)},
        "two": {"inner": Choice(options={"x": {"c": Int(low=4, high=5)}, "y": None})},
        "three": None,
    }
)


def test_choices_are_equally_likely() -> None:
    rng = np.random.default_rng(0)
    draws = [Choice(options=("a", "b", "c")).sample(rng) for _ in range(600)]
    assert stats.chisquare([draws.count(o) for o in "abc"]).pvalue > 0.001


OPTIONS = [
    (None, 1, "a", 2.5, True),
    ((0.9, 0.99), (0.5, 0.9), None),
    (Sgd(), Adam(lr=0.1)),
    ({"kind": "sgd"}, {"kind": "adam", "milestones": [0.5]}),
    (Hyper, Dimension),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options_are_anything_that_a_config_can_hold(options) -> None:
    dim, rng = Choice(options=options), np.random.default_rng(0)
    again = Dimension.made_from(json.loads(dim.model_dump_json()))
    assert again == dim
    drawn = [again.sample(rng) for _ in range(50)]
    assert all(dim.contains(value) for value in drawn)
    assert len({repr(value) for value in drawn}) == len(options) == len(dim.grid())
    json.dumps(drawn)


def test_true_is_not_one() -> None:
    assert Choice(options=(1, 2)).contains(1)
    assert not Choice(options=(1, 2)).contains(True)
    assert Choice(options=(1, True)).option_of(True) == 1


@pytest.mark.parametrize("dim", [NESTED, DEEP], ids=["optimiser", "deep"])
def test_a_nested_choice_survives_json_draws_from_all_and_contains_its_draws(dim) -> None:
    again = Dimension.made_from(json.loads(dim.model_dump_json()))
    assert again == dim
    rng = np.random.default_rng(0)
    drawn = [dim.sample(rng) for _ in range(300)]
    counts = [sum(dim.option_of(value) == i for value in drawn) for i in range(len(dim.options))]
    assert stats.chisquare(counts).pvalue > 0.001
    for value in drawn:
        near = dim.perturb(value, rng)
        assert dim.contains(value)
        assert dim.contains(near)
        if dim is NESTED:  # a state that was trained under one optimiser is of no use to another
            assert near["kind"] == value["kind"]
    assert not dim.contains({"kind": "sgd", "lr": 5.0, "momentum": 0.1})
    assert not dim.contains("sgd")


def test_a_part_of_a_config_may_have_more_fields_than_the_option() -> None:
    whole = Sgd(lr=0.1, momentum=0.5).model_dump(mode="json")
    assert NESTED.encoded(whole) == "sgd"
    assert {name: value for name, _, value in NESTED.leaves("o", whole)} | {"o": 0} == {
        "o": 0, "o[sgd].lr": 0.1, "o[sgd].momentum": 0.5,
    }  # fmt: skip


def test_the_grid_of_a_nested_choice_is_that_of_loops() -> None:
    expected = [{"a": 1, "b": (b, 7)} for b in (1, 2, 3)]
    expected += [{"inner": {"c": 4}}, {"inner": {"c": 5}}, {"inner": None}, None]
    assert list(DEEP.grid()) == expected
    assert NESTED.grid() is None


@pytest.mark.parametrize("dim", [NESTED, DEEP, Choice(options=OPTIONS[1])], ids=str)
def test_optuna_draws_the_same_tree_and_is_told_what_it_drew(dim) -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    labels = []
    for _ in range(60):
        trial = study.ask()
        value = dim.suggest("o", lambda name, dist, trial=trial: _suggested(trial, name, dist))
        assert dim.contains(value)
        assert _parameters({"o": dim}, {"o": value}) == trial.params
        told = {name: leaf.distribution() for name, leaf, _ in dim.leaves("o", value)}
        assert told == trial.distributions
        labels.append(dim.encoded(value))
    assert len(set(labels)) == len(dim.options)


def test_dimensions_that_stand_under_different_options_have_names_of_their_own() -> None:
    rng = np.random.default_rng(0)
    names = {leaf[0] for _ in range(30) for leaf in NESTED.leaves("o", NESTED.sample(rng))}
    assert names == {"o", "o[sgd].lr", "o[sgd].momentum", "o[adam].lr"}
    assert len(list(NESTED.parts())) == 4


@pytest.mark.parametrize(
    ("options", "law"),
    [
        ((), "at least 1"),
        ((float("nan"),), "finite"),
        ((object(),), "what a config can hold"),
        ((Uniform(low=0, high=1), 3), "dimension by itself"),
        ({"a": {"vary": {"kind": "unifrom"}}}, "not a known dimension"),
        ((lambda: 1,), "lambda"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options, law: str) -> None:
    with pytest.raises((ValueError, TunepartsError), match=law):
        Choice(options=options)


def test_an_option_that_is_no_scalar_is_called_by_its_json() -> None:
    dim = Choice(options=((1, 2), {"a": None}))
    assert list(dim.distribution().choices) == ["[1, 2]", '{"a": null}']


def test_nested_options_that_are_the_same_are_refused() -> None:
    option = {"kind": "sgd", "momentum": Choice(options=(0.0, 0.9))}
    with pytest.raises(ValueError, match="names of their own"):
        Choice(options=(option, option))
