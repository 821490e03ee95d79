"""Which trial stands for a replicate, under each rule."""

import json
import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import optuna
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.core import selection
from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.core.schema import lookup
from tuneparts.core.selection import Best, Selection, Within
from tuneparts.executors import Place, execute
from tuneparts.results.run_data import RunData
from tuneparts.search import frames, runs
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.algorithms.sampler import Optuna, Tpe
from tuneparts.search.arm import Arm
from tuneparts.search.card import RunCard
from tuneparts.search.check import check
from tuneparts.search.journal import Journal
from tuneparts.search.plan import Plan
from tuneparts.search.segment import Result
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Search
from tuneparts.testing.null import NullConfig, NullLearner
from tuneparts.training.learner import Context, Learner

OBJECTIVES = ("val/accuracy", "size/parameters")
METRICS = [lookup(name) for name in OBJECTIVES]


def rows(*points: tuple[float, float]) -> dict[int, dict[str, float]]:
    return {i: dict(zip(OBJECTIVES, point, strict=True)) for i, point in enumerate(points)}


FOUR = rows((0.99, 1000.0), (0.95, 100.0), (0.5, 90.0), (0.7, 500.0))


@pytest.mark.parametrize(
    ("rule", "expected", "words"),
    [
        (Best(), 0, "the trial selected by val/accuracy"),
        (Within(limits={"size/parameters": 600}), 1, "size/parameters ≤ 600"),
        (Within(limits={"size/parameters": 95}), 2, "≤ 95"),
        (Within(limits={"val/accuracy": 0.96}), 0, "val/accuracy ≥ 0.96"),
        (Within(limits={"size/parameters": 5}), None, "≤ 5"),
    ],
)
def test_every_rule_chooses_and_says_how(rule: Selection, expected, words: str) -> None:
    assert rule.choose(FOUR, METRICS) == expected
    assert words in rule.words(METRICS)
    assert Selection.made_from(json.loads(rule.model_dump_json())) == rule


@pytest.mark.parametrize("rule", [Best(), Within(limits={"val/accuracy": 0})])
def test_no_rule_chooses_a_trial_without_a_score_or_of_none(rule: Selection) -> None:
    assert rule.choose({}, METRICS) is None
    bad = {0: {"val/accuracy": math.nan, "size/parameters": 1.0}, 1: {}, **{2: FOUR[3]}}
    assert rule.choose(bad, METRICS) == 2


@pytest.mark.parametrize("rule", [Best(), Within(limits={"size/parameters": 2000})])
def test_of_equals_the_one_that_is_better_otherwise_is_chosen(rule: Selection) -> None:
    equal = rows((0.9, 1000.0), (0.9, 500.0), (0.9, 500.0), (0.8, 1.0))
    assert rule.choose(equal, METRICS) == 1
    assert rule.choose(equal, METRICS[:1]) == 0
    assert rule.choose({**equal, 1: {"val/accuracy": 0.9}}, METRICS) == 2


class SizedConfig(NullConfig):
    """A score and a size that pull in different directions."""

    method: Literal["tests.core.test_selection:SizedConfig"] = (  # type: ignore[assignment]
        "tests.core.test_selection:SizedConfig"
    )

    def build(self, context: Context) -> Learner:
        return SizedLearner(self, context)


class SizedLearner(NullLearner):
    def advance(self) -> Mapping[str, float]:
        x = self.config.x
        return {**super().advance(), "val/accuracy": math.sqrt(x), "size/parameters": 1000 * x}


def searched(null_search, algorithm: Any, **fields: Any) -> Search:
    arm = Arm(
        name="a",
        config=SizedConfig(steps=8, interval=4),
        algorithm=algorithm,
        space={"x": Uniform(low=0.01, high=1.0)},
    )
    return null_search(arm, **{"metric": OBJECTIVES[0], "objectives": OBJECTIVES, **fields})


@pytest.mark.parametrize("rule", [Best(), Within(limits={"size/parameters": 400})])
def test_plan_report_and_checkpoints_agree_on_the_selected_trial(
    null_search, tmp_path, rule: Selection
) -> None:
    search = searched(null_search, RandomSearch(num_trials=6), selection=rule)
    run = runs.create(tmp_path, search, command="", commit="", versions={}, storage="")
    execute(search, folder=run.folder, place=Place("local", workers=1))
    journal = Journal(run.folder / "journal.jsonl")
    selected = Plan(search, journal).selected("a", 0)
    journal.close()
    told = RunCard.from_json(RunCard.of(run).to_json())
    assert (told.rule, told.objectives) == (rule, OBJECTIVES)
    data = RunData(told, frames.trials(run.folder / "journal.jsonl"), pd.DataFrame())
    assert data.selected["trial"].tolist() == [str(selected)]
    assert any(rule.words(METRICS) in note for note in data.tables[0].notes)
    assert list((run.folder / "trials" / str(selected)).glob("r*.pt"))


@pytest.mark.parametrize(
    "algorithm",
    [
        Optuna(sampler="nsgaii", num_trials=12, window=4, options={"population_size": 4}),
        Tpe(num_trials=12, num_startup=4, window=4),
    ],
)
def test_samplers_are_asked_and_told_of_all_objectives(null_search, algorithm) -> None:
    search = searched(null_search, algorithm)
    (arm,) = search.arms
    study = optuna.create_study(
        directions=["maximize", "minimize"], sampler=algorithm.make_sampler(arm, 0)
    )
    asked, results = algorithm.front_proposals(arm, 0, search.all_objectives), None
    trials = []
    for place in range(9):
        batch = asked.send(results)
        for one in batch.run:
            trials.append((study.ask(), one))
            assert one.config["x"] == trials[-1][0].suggest_float("x", 0.01, 1.0)
        trial, one = trials[place]
        x = one.config["x"]
        study.tell(trial, (math.sqrt(x), 1000 * x))
        results = {one.trial: Result({"val/accuracy": math.sqrt(x), "size/parameters": 1000 * x})}
    assert len(trials) == 12


def test_a_search_with_objectives_survives_json(null_search) -> None:
    search = searched(
        null_search, RandomSearch(num_trials=2), selection=Within(limits={"size/parameters": 400})
    )
    assert parse(Search, json.loads(search.model_dump_json())) == search
    tree = json.loads(search.model_dump_json())
    del tree["metric"]
    assert parse(Search, tree).metric == "val/accuracy"


@pytest.mark.parametrize(
    ("fields", "law"),
    [
        ({"objectives": ("val/accuracy", "test/nll")}, "nothing is decided on test data"),
        ({"objectives": ("val/accuracy", "anytime/flops.0")}, "nothing is decided on test data"),
        ({"objectives": ("val/accuracy", "hyper/rotation")}, "is a description"),
        ({"objectives": ("val/accuracy",)}, "take two or more metrics"),
        ({"objectives": ("val/accuracy", "val/accuracy")}, "take two or more metrics"),
        ({"objectives": ("val/nll", "val/accuracy")}, "first objective is the selection metric"),
        ({"selection": {"kind": "within", "limits": {"test/nll": 1}}}, "nothing is decided on"),
        ({"selection": {"kind": "within", "limits": {}}}, "at least 1"),
    ],
)
def test_objectives_that_cannot_be_meant_are_refused(null_search, fields, law: str) -> None:
    with pytest.raises(ValueError, match=law):
        searched(null_search, RandomSearch(num_trials=2), **fields)


def test_unknown_rules_and_objectives_list_the_known_ones(null_search) -> None:
    for fields in ({"selection": {"kind": "knee"}}, {"objectives": ("val/accuracy", "size/x")}):
        with pytest.raises(LookupError, match="Known: "):
            searched(null_search, RandomSearch(num_trials=2), **fields)


def test_a_sampler_for_one_objective_is_refused_before_anything_runs(null_search) -> None:
    with pytest.raises(ConfigError, match="the algorithm of `a` weighs several objectives"):
        check(searched(null_search, Optuna(sampler="cmaes", num_trials=4)))
    check(searched(null_search, Optuna(sampler="nsgaii", num_trials=4)))


WHOLE = st.integers(min_value=0, max_value=6)


def clouds(num_objectives: int):
    """Points on a small grid, so that ties and doubles occur."""
    return st.lists(st.tuples(*[WHOLE] * num_objectives), max_size=8)


def array(points, num_objectives: int):
    return np.asarray(points, np.float64).reshape(-1, num_objectives)


def dominates(a, b) -> bool:
    return all(x >= y for x, y in zip(a, b, strict=True)) and a != b


@pytest.mark.parametrize("m", [1, 2, 3])
def test_the_front_is_what_nothing_dominates(m: int) -> None:
    @settings(max_examples=60, deadline=None)
    @given(clouds(m))
    def check(points) -> None:
        expected = [not any(dominates(other, one) for other in points) for one in points]
        assert selection.front(array(points, m)).tolist() == expected

    check()


def test_a_point_without_a_number_is_nowhere() -> None:
    points = np.array([[1.0, np.nan], [0.5, 0.5]])
    assert selection.front(points).tolist() == [False, True]


def test_metrics_of_which_smaller_is_better_are_turned() -> None:
    metrics = [lookup("val/accuracy"), lookup("size/parameters")]
    assert selection.oriented([[0.9, 10.0]], metrics).tolist() == [[0.9, -10.0]]
    assert selection.oriented([], metrics).shape == (0, 2)
