"""Algorithms and dimensions that are not ours: by class, by import path, and what is refused."""

import json
import math
from typing import Any

import numpy as np
import optuna
import pytest

from tuneparts.core import schema
from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.executors import Place, execute
from tuneparts.search import load, runs
from tuneparts.search.algorithms.base import Algorithm, GridSearch, RandomSearch, draw, whole_trial
from tuneparts.search.algorithms.sampler import OptunaSearch, Tpe
from tuneparts.search.arm import Arm
from tuneparts.search.card import RunCard
from tuneparts.search.journal import Journal, records
from tuneparts.search.plan import Plan
from tuneparts.search.segment import Batch
from tuneparts.search.space import Choice, Dimension
from tuneparts.search.spec import Search
from tuneparts.testing import AlgorithmContract


class Twice(Algorithm):
    """Two draws, and then the better one once more."""

    is_adaptive = True

    def trials_per_seed(self, space: Any) -> int:
        return 3

    def proposals(self, arm: Arm, seed: int, metric: schema.Metric) -> Any:
        values = [draw(arm, seed, i) for i in range(2)]
        trials = [whole_trial(arm, seed=seed, index=i, values=v) for i, v in enumerate(values)]
        results = yield Batch(tuple(trials))
        first, second = (results[one.trial].score(metric) for one in trials)
        best = values[1 if math.isnan(first) or metric.better(second, first) else 0]
        yield Batch((whole_trial(arm, seed=seed, index=2, values=best),))


class OptunaRandom(OptunaSearch):
    """A sampler of Optuna that is not among ours."""

    def sampler(self, arm: Arm, seed: int) -> Any:
        return optuna.samplers.RandomSampler(seed=seed)


class MyRandom(RandomSearch):
    """One of ours, changed."""


class Steps(Dimension):
    """Multiples of a step."""

    step: float
    count: int

    def sample(self, rng: np.random.Generator) -> float:
        return self.step * int(rng.integers(self.count))

    def grid(self) -> tuple[float, ...]:
        return tuple(self.step * i for i in range(self.count))


class Forgetful(Algorithm):
    is_adaptive = True

    def trials_per_seed(self, space: Any) -> int:
        return 1


class Wrong(RandomSearch):
    """Yields what an algorithm must not."""

    fault: str

    def proposals(self, arm: Arm, seed: int, metric: schema.Metric) -> Any:
        return None if self.fault == "returns" else self.yielded(arm, seed)

    def yielded(self, arm: Arm, seed: int) -> Any:
        one = whole_trial(arm, seed=seed + (self.fault == "stray"), index=0, values={})
        yield {"list": [one], "twice": Batch((one, one)), "stray": Batch((one,))}[self.fault]


class TestTwice(AlgorithmContract):
    algorithm = Twice()


class TestOptunaRandom(AlgorithmContract):
    algorithm = OptunaRandom(num_trials=5, window=2)


class TestMyRandom(AlgorithmContract):
    algorithm = MyRandom(num_trials=5)


class TestOwnDimension(AlgorithmContract):
    algorithm = GridSearch()
    space = {"x": Steps(step=0.25, count=3), "seconds": Choice(options=(0.0, 1.0))}  # noqa: RUF012


@pytest.fixture
def own(null_search, null_arm) -> Search:
    return null_search(
        null_arm("twice", algorithm=Twice()),
        null_arm("random", algorithm=MyRandom(num_trials=2), space={"x": Steps(step=0.2, count=4)}),
    )


def test_a_search_with_own_classes_runs_and_survives_json(own, tmp_path) -> None:
    tree = json.loads(own.model_dump_json())
    kinds = [arm["algorithm"]["kind"] for arm in tree["arms"]]
    assert kinds == [f"{__name__}:Twice", f"{__name__}:MyRandom"]
    assert tree["arms"][1]["space"]["x"] == {"kind": f"{__name__}:Steps", "step": 0.2, "count": 4}
    back = parse(Search, tree)
    assert back == own
    assert back.digest == own.digest
    execute(back, folder=tmp_path, place=Place("local", workers=1))
    trials = sorted(records(tmp_path / "journal.jsonl").items())
    x = [record.config["x"] for trial, record in trials if trial.arm == "twice"]
    assert len(x) == 3
    # The score of the null method is best at 0.7.
    assert x[2] == min(x[:2], key=lambda value: abs(value - 0.7))
    drawn = [record.config["x"] for trial, record in trials if trial.arm == "random"]
    assert set(drawn) <= set(Steps(step=0.2, count=4).grid())


def test_reports_ask_the_algorithm_whether_it_adapts(own, tmp_path) -> None:
    run = runs.create(tmp_path, own, command="", commit="", versions={}, storage=None)
    assert [arm.is_adaptive for arm in RunCard.of(run).arms] == [True, False]


def test_a_class_is_found_by_its_import_path(null_arm, tmp_path, monkeypatch) -> None:
    (tmp_path / "brought.py").write_text(
        "from tuneparts.search.algorithms.base import RandomSearch\n"
        "from tuneparts.search.space import Uniform\n"
        "class Holder:\n"
        "    class Mine(RandomSearch):\n"
        "        pass\n"
        "class Range(Uniform):\n"
        "    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    arm = null_arm(
        "a",
        algorithm={"kind": "brought:Holder.Mine", "num_trials": 3},
        space={"x": {"kind": "brought:Range", "low": 0.0, "high": 1.0}},
    )
    assert arm.trials_per_seed == 3
    assert type(arm.algorithm).__name__ == "Mine"
    assert type(arm.space["x"]).__name__ == "Range"
    assert parse(Arm, arm.model_dump(mode="json")) == arm


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("randon", r"not a known algorithm. Did you mean `random`\? Known: asha, fixed, grid"),
        (None, "Known: asha"),
        (["random"], "Known: asha"),
        ("no_such_package:Mine", "`no_such_package:Mine` cannot be imported"),
        ("math:Mine", "cannot be imported .* module 'math' has no attribute 'Mine'"),
        (":x", "cannot"),
        ("math:sin", "not a subclass of Algorithm"),
        (f"{__name__}:Forgetful", "does not define proposals"),
    ],
)
def test_a_kind_that_leads_nowhere_is_refused(null_arm, kind: Any, message: str) -> None:
    with pytest.raises((ValueError, UnknownNameError), match=message):
        null_arm("a", algorithm={"kind": kind})


def test_an_unknown_dimension_lists_the_known_ones(null_arm) -> None:
    with pytest.raises(UnknownNameError, match=r"not a known dimension\. .*Known: choice, int"):
        null_arm("a", algorithm=MyRandom(num_trials=1), space={"x": {"kind": "unifrom"}})


def test_what_a_class_forgets_is_said_at_once() -> None:
    with pytest.raises(ConfigError, match=r"`is_adaptive` of Undecided: .*True or False"):

        class Undecided(Algorithm):
            pass

    with pytest.raises(TypeError, match="proposals"):
        Forgetful()


def test_a_class_inside_a_function_is_refused() -> None:
    class Hidden(RandomSearch):
        pass

    with pytest.raises(ValueError, match="stands inside a function"):
        Hidden(num_trials=1)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("returns", r"`.*Wrong` returned None, not a generator. Write `yield Batch"),
        ("list", r"yields a Batch, but `.*Wrong` yielded \[Segment"),
        ("twice", r"`.*Wrong` yielded a/seed0/00000: .* arm `a` and seed 0, each once"),
        ("stray", r"`.*Wrong` yielded a/seed1/00000: .* arm `a` and seed 0, each once"),
    ],
)
def test_wrong_batches_are_refused_before_anything_runs(
    null_search, null_arm, tmp_path, fault: str, message: str
) -> None:
    search = null_search(null_arm("a", algorithm=Wrong(num_trials=1, fault=fault)))
    journal = Journal(tmp_path / "journal.jsonl")
    with pytest.raises(ConfigError, match=message):
        Plan(search, journal)
    assert list(journal.events) == []
    journal.close()


def test_a_dimension_without_a_distribution_is_refused_by_optuna_alone(
    null_search, null_arm
) -> None:
    space = {"x": Steps(step=0.1, count=3)}
    assert null_search(null_arm("a", algorithm=RandomSearch(num_trials=2), space=space))
    arm = null_arm("a", algorithm=Tpe(num_trials=2), space=space)
    with pytest.raises(ValueError, match=r"arms\['a'\].space\['x'\]: .* no `distribution`"):
        null_search(arm)


def test_trials_on_the_command_line_are_up_to_the_algorithm(tmp_path) -> None:
    search = load.load("random_vs_partitioned", scale="smoke", trials=5)
    trials = {arm.algorithm.kind: arm.trials_per_seed for arm in search.arms}
    assert trials == {"fixed": 1, "random": 5, "optuna": 5, "asha": 5, "pbt": 4}
