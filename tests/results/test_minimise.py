"""`minimize`: dicts, trials as in Optuna, several algorithms, and what is refused by name."""

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tuneparts
from tuneparts.core import schema, settings
from tuneparts.core.errors import ConfigError
from tuneparts.results.minimise import _asked, minimize
from tuneparts.search import runs
from tuneparts.search.algorithms.base import GridSearch, RandomSearch
from tuneparts.search.algorithms.halving import SuccessiveHalving
from tuneparts.search.algorithms.sampler import Tpe
from tuneparts.search.space import Choice, Int, Uniform

LINE = {"x": Uniform(-5, 5)}
pytestmark = [pytest.mark.mlflow, pytest.mark.usefixtures("results")]


@pytest.fixture(autouse=True)
def own_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test declares is forgotten after it."""
    monkeypatch.setattr(schema, "METRICS", dict(schema.METRICS))


def bowl(at: dict[str, Any]) -> float:
    return (at["x"] - 1) ** 2 + at["seed"]


def rows(at: dict[str, Any]) -> Iterator[dict[str, float]]:
    for step in range(4):
        yield {"val/bowl": bowl(at) - step, "test/bowl": bowl(at)}


def of_trial(trial: Any) -> float:
    x = trial.suggest_float("x", 0.001, 10, log=True)
    y = trial.suggest_float("y", 0, 1, step=0.25)
    n = trial.suggest_int("n", 1, 9, step=2)
    kind = trial.suggest_categorical("kind", ["sgd", "adam", None])
    return math.log(x) ** 2 + y + n + len(str(kind))


def deeper(trial: Any) -> float:
    layers = trial.suggest_int("layers", 1, 3)
    return sum(trial.suggest_int(f"width_{layer}", 8, 64) for layer in range(layers))


def moving(trial: Any) -> float:
    return trial.suggest_float("y", 0, trial.suggest_float("x", 1, 2))


def test_each_algorithm_is_an_arm_and_each_seed_is_run() -> None:
    results = minimize(bowl, LINE, by=[RandomSearch(6), Tpe(6)], seeds=2)
    search = results.search
    assert [arm.name for arm in search.arms] == ["random", "tpe"]
    assert (search.name, search.question, search.metric) == (
        "bowl",
        "Where is `bowl` smallest?",
        "val/loss",
    )
    assert len(results.trials) == 2 * 12
    for _, row in results.selected.iterrows():
        own = results.trials[(results.trials["arm"] == row["arm"])]
        own = own[own["seed"] == row["seed"]]
        assert row["val/loss"] == own["val/loss"].min()
        assert row["val/loss"] == bowl({"x": row["param.params.x"], "seed": row["seed"]})
    assert tuneparts.load(results.name).answer == results.answer


def test_names_of_arms_can_be_given() -> None:
    results = minimize(bowl, LINE, by={"mine": RandomSearch(2)}, seeds=[7], name="given")
    assert results.name.startswith("given/")
    assert set(results.trials["arm"]) == {"mine"}
    assert set(results.trials["seed"]) == {7}


def test_the_largest_value_where_a_constraint_allows_it() -> None:
    bound = 2.0
    results = minimize(
        lambda at: at["x"],
        LINE,
        by=RandomSearch(30),
        seeds=1,
        direction="max",
        constraint=lambda at: at["x"] - bound,
    )
    assert results.search.metric == "val/score"
    assert results.trials["param.params.x"].max() <= bound
    assert results.selected["val/score"].item() == results.trials["val/score"].max()


def test_a_value_that_is_no_number_is_a_failed_trial() -> None:
    results = minimize(
        lambda at: math.nan if at["x"] > 0 else -at["x"], LINE, by=RandomSearch(12), seeds=1
    )
    failed = results.trials["param.params.x"] > 0
    assert failed.any()
    assert (results.trials["outcome"] == "failed").equals(failed)
    assert "reported `val/loss` as nan" in results.trials["error"][failed].iloc[0]
    assert results.selected["val/loss"].item() >= 0


def test_dicts_that_are_yielded_are_steps() -> None:
    reports = {"val/bowl": "min", "test/bowl": "min"}
    by = SuccessiveHalving(4, min_steps=1, reduction=2)
    results = minimize(rows, LINE, by=by, seeds=1, steps=4, reports=reports)
    assert results.search.metric == "val/bowl"
    assert set(results.steps["step"]) == {1, 2, 3, 4}
    assert set(results.trials["outcome"]) == {"finished", "stopped"}


def test_a_trial_says_its_own_space() -> None:
    assert _asked(of_trial) == {
        "x": Uniform(0.001, 10, log=True),
        "y": Uniform(0, 1, step=0.25),
        "n": Int(1, 9, step=2),
        "kind": Choice(["sgd", "adam", None]),
    }
    results = minimize(of_trial, by=[RandomSearch(5), Tpe(5)], seeds=1)
    assert set(results.trials["outcome"]) == {"finished"}
    assert set(results.trials["param.params.n"]) <= {1, 3, 5, 7, 9}


def test_a_grid_over_what_a_trial_suggests() -> None:
    results = minimize(
        lambda trial: trial.suggest_int("n", 1, 3) * trial.suggest_categorical("k", [2, 5]),
        by=GridSearch(),
        seeds=1,
    )
    assert sorted(results.trials["val/loss"]) == [2, 4, 5, 6, 10, 15]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (deeper, r"`deeper`: \['width_1', 'width_2'\] differ .* nested Choice"),
        (moving, r"`moving`: \['y'\] differ with other values"),
        (lambda trial: 0.0, "suggests nothing"),
        (lambda trial: 1 / trial.params["x"], "raised KeyError: 'x' at {}.* Give a space"),
        (lambda trial: trial.suggest_float("x", 5, -5), r"suggest_float\('x'\).*`low < high`"),
        (lambda trial: trial.suggest_uniform("x", 0, 1), "trial.suggest_uniform: is not supported"),
        (
            lambda trial: trial.suggest_int("x", 0, 3) + trial.suggest_int("x", 0, 4),
            r"suggest_int\('x'\): has two ranges",
        ),
        (bowl, "space = None: what shall be varied"),
    ],
)
def test_a_trial_that_cannot_say_its_space_is_refused(function: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        minimize(function, by=Tpe(3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"space": {"x": (-5, 5)}}, r"space\['x'\] = \(-5, 5\): must be a distribution"),
        ({"space": {}}, "space = None: what shall be varied"),
        ({"by": "tpe"}, "by = 'tpe': must be algorithms"),
        ({"by": []}, r"by = \[\]: must be algorithms"),
        ({"by": [Tpe(2), Tpe(3)]}, "several of one kind have names"),
        ({"by": {"Mine": Tpe(2)}}, "Mine"),
        ({"direction": "maximize"}, "direction = 'maximize': must be 'min' or 'max'"),
        ({"reports": {"loss": "min"}}, "family/quantity"),
        ({"steps": 0}, "`steps` = 0"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        minimize(bowl, **({"space": LINE, "by": Tpe(2)} | options))
    assert runs.listing(settings.current().results_dir) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workers": 2}, "ray = None, workers = 2"),
        ({"ray": "auto"}, "ray = 'auto', workers = None"),
    ],
)
def test_a_function_that_no_worker_can_import_runs_here_only(options: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=f"{words}: no worker can import .*top level"):
        minimize(lambda at: at["x"], LINE, by=RandomSearch(2), **options)


SCRIPT = """
import tuneparts as tp

def loss(at):
    return (at["x"] - 1) ** 2

if __name__ == "__main__":
    results = tp.minimize(loss, {"x": tp.Uniform(-5, 5)}, by=tp.RandomSearch(4), seeds=1{more})
    print(set(results.trials["outcome"]), len(results.trials))
"""


@pytest.mark.parametrize("how", ["script", "script with workers", "typed"])
def test_a_script_and_what_is_typed(how: str, tmp_path: Path) -> None:
    text = SCRIPT.replace("{more}", ", workers=2" if "with" in how else "")
    (tmp_path / "mine.py").write_text(text)
    command = [sys.executable, *(["-c", text] if how == "typed" else ["mine.py"])]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=120, cwd=tmp_path
    )
    assert done.stdout.strip().endswith("{'finished'} 4")
