"""A warm start: what an earlier run knows is copied into the search, and used."""

import json
import shutil
from pathlib import Path

import optuna
import pytest

from tuneparts.config import parse
from tuneparts.errors import ConfigError, DataMissingError
from tuneparts.executors import execute
from tuneparts.schema import lookup
from tuneparts.search import runs
from tuneparts.search.algorithms.study_door import StudyDoor, known_trials
from tuneparts.search.space import Choice, Uniform
from tuneparts.search.spec import Arm, RandomSearch, Search, Tpe
from tuneparts.testing.null import NullConfig

SPACE = {"x": Uniform(low=0.0, high=1.0), "seconds": Choice(options=(0.0, 0.001))}
ACCURACY = lookup("val/accuracy")


def arm(name: str = "a", **fields) -> Arm:
    values = {"algorithm": RandomSearch(num_trials=8), "space": SPACE, **fields}
    return Arm(name=name, config=NullConfig(passes=8, interval=4), **values)


@pytest.fixture
def earlier(null_search, tmp_path, monkeypatch) -> runs.Run:
    """A finished run of one random arm with eight trials."""
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path))
    run = runs.create(tmp_path, null_search(arm()), command="", commit="", versions={}, storage="")
    execute(run.search, folder=run.folder, executor="local", workers=1)
    return run


def test_trials_are_copied_best_first_and_without_test_scores(earlier, null_search) -> None:
    prior = arm(warm_start=earlier.name).warm_start
    assert (prior.run, prior.arm, len(prior.trials)) == (earlier.name, "a", 8)
    scores = [trial.metrics["val/accuracy"] for trial in prior.trials]
    assert scores == sorted(scores, reverse=True)
    assert abs(prior.trials[0].values["x"] - 0.7) < 0.2
    assert not any(name.startswith("test/") for t in prior.trials for name in t.metrics)

    search = null_search(arm(warm_start="null"))
    shutil.rmtree(earlier.folder)
    again = parse(Search, json.loads(search.model_dump_json()))  # needs the earlier run no more
    assert again == search
    assert again.digest == search.digest != null_search(arm()).digest


def test_random_search_tries_the_best_first_and_points_before_them(earlier) -> None:
    one = arm(warm_start=earlier.name, points=[{"x": 0.5}])
    (batch,) = one.algorithm.proposals(one, 0, ACCURACY)
    found = [segment.config["x"] for segment in batch.run]
    assert found[:6] == [0.5, *(trial.values["x"] for trial in one.warm_start.trials[:5])]


def test_optuna_is_told_of_all_and_goes_on_near_the_best(earlier) -> None:
    one = arm(algorithm=Tpe(num_trials=4, batch=1, num_startup=1), warm_start=earlier.name)
    study = optuna.create_study(direction="maximize")
    StudyDoor(study, one, 0, [ACCURACY])
    assert [trial.value for trial in study.trials] == [
        trial.metrics["val/accuracy"] for trial in one.warm_start.trials
    ]
    assert study.best_params == one.warm_start.trials[0].values
    with pytest.raises(ConfigError, match="tells scores by val/nll, but no trial of null"):
        known_trials(one, [lookup("val/nll")])


def test_the_arm_there_may_have_another_name(earlier) -> None:
    assert arm("b", warm_start=f"{earlier.name}:a").warm_start.arm == "a"
    with pytest.raises(ValueError, match=r"has no arm `b`. Write `warm_start=.*with one of: a"):
        arm("b", warm_start=earlier.name)


def test_trials_outside_the_space_are_left_out(earlier) -> None:
    known = sorted(t.values["x"] for t in arm(warm_start=earlier.name).warm_start.trials)
    small = {**SPACE, "x": Uniform(low=0.0, high=known[3])}
    found = arm(space=small, warm_start=earlier.name).warm_start.trials
    assert sorted(trial.values["x"] for trial in found) == known[:4]
    with pytest.raises(DataMissingError, match="a finished trial inside the space"):
        arm(space={**SPACE, "x": Uniform(low=2.0, high=3.0)}, warm_start=earlier.name)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"x": SPACE["x"]}, "has seconds besides"),
        ({**SPACE, "interval": Choice(options=(2, 4))}, "lacks interval"),
        ({"x": SPACE["x"], "interval": Choice(options=(2,))}, "lacks interval and has seconds"),
    ],
)
def test_other_dimensions_are_refused_by_name(earlier, space, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        arm(space=space, warm_start=earlier.name)


def test_a_run_that_is_not_there_is_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path))
    with pytest.raises(ValueError, match="`nowhere` is not a run"):
        arm(warm_start="nowhere")
