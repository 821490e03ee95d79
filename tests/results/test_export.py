"""Runs in the files of other programs, read back by those programs."""

from pathlib import Path

import optuna
import pandas as pd
import pytest

import tuneparts
from tuneparts import executors
from tuneparts.core.errors import UnknownNameError
from tuneparts.search import runs
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.algorithms.halving import Asha
from tuneparts.search.arm import Arm
from tuneparts.search.space import Choice, Uniform
from tuneparts.testing.null import NullConfig


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuneparts.Results:
    from tuneparts.search.spec import Scale, Search

    space = {
        "x": Uniform(low=0.01, high=1.0, log=True),
        "seconds": Choice(options=(0.0, 0.001)),
    }
    config, asha = NullConfig(steps=8, interval=2), Asha(num_trials=4, min_steps=2)
    search = Search(
        name="null", question="?", scale=Scale.SMOKE, data={"name": "digits", "num_val": 10},
        metric="val/accuracy", steps=8, seeds=(0, 1),
        arms=(
            Arm(name="random", config=config, algorithm=RandomSearch(num_trials=4), space=space),
            Arm(name="asha", config=config, algorithm=asha, space=space),
            Arm(name="none", config=config),
        ),
    )  # fmt: skip
    root = tmp_path_factory.mktemp("runs")
    made = runs.create(root, search, command="", commit="", versions={}, storage=None)
    executors.execute(search, folder=made.folder, place=executors.Place("local", workers=1))
    return tuneparts.Results(made)


@pytest.mark.parametrize("name", ["optuna.db", "optuna.log"])
def test_optuna_opens_our_runs(results: tuneparts.Results, tmp_path: Path, name: str) -> None:
    [path] = results.export("optuna", tmp_path / name)
    results.export("optuna", tmp_path / name)  # again, in its place
    storage = (
        f"sqlite:///{path}"
        if name.endswith(".db")
        else optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
    )
    names = {
        study.study_name.rpartition("/")[2] for study in optuna.get_all_study_summaries(storage)
    }
    assert names == {"random", "asha", "none"}
    studies = {
        n: optuna.load_study(study_name=f"{results.run.name}/{n}", storage=storage) for n in names
    }
    frame = results.trials.set_index("trial")
    for trial in studies["random"].trials:
        row = frame.loc[trial.user_attrs["trial"]]
        assert trial.value == row["val/accuracy"]
        assert trial.params["x"] == row["param.x"]
        assert trial.user_attrs["test/accuracy"] == row["test/accuracy"]
        assert list(trial.intermediate_values) == [2, 4, 6, 8]
        assert trial.distributions["x"].log
        assert abs(trial.datetime_complete.timestamp() - row["end"].timestamp()) < 0.01
    best = results.trials[results.trials["arm"] == "random"]["val/accuracy"].max()
    assert studies["random"].best_value == best
    states = {trial.state.name for trial in studies["asha"].trials}
    assert states == {"COMPLETE", "PRUNED"}
    assert len(studies["none"].trials) == 2
    if name.endswith(".db"):
        assert optuna.visualization.plot_parallel_coordinate(studies["random"]).data
        assert optuna.visualization.plot_intermediate_values(studies["asha"]).data
        assert optuna.visualization.plot_timeline(studies["asha"]).data
    assert [file.name for file in tmp_path.iterdir() if not file.name.startswith(name)] == []


def test_frames_go_through_files(results: tuneparts.Results, tmp_path: Path) -> None:
    for to, read in {"csv": pd.read_csv, "parquet": pd.read_parquet}.items():
        trials, steps = (read(path) for path in results.export(to, tmp_path))
        assert trials["val/accuracy"].tolist() == results.trials["val/accuracy"].tolist()
        assert list(trials) == list(results.trials)
        assert steps["value"].tolist() == results.steps["value"].tolist()
    with pytest.raises(UnknownNameError, match="Did you mean `parquet`"):
        results.export("parquett")
