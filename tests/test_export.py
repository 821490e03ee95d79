"""Runs in the files of other programs, read back by those programs."""

from pathlib import Path

import optuna
import pandas as pd
import pytest

from tuneparts import api, executors, frames
from tuneparts.errors import UnknownNameError
from tuneparts.search import curves, runs, tabulated
from tuneparts.search.plan import Plan
from tuneparts.search.space import Choice, Uniform
from tuneparts.search.spec import Arm, Asha, RandomSearch, Tpe
from tuneparts.testing.null import NullConfig


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> api.Results:
    from tuneparts.search.spec import Scale, Search

    space = {
        "x": Uniform(low=0.01, high=1.0, log=True),
        "seconds": Choice(options=(0.0, 0.001)),
    }
    config, asha = NullConfig(passes=8, interval=2), Asha(num_trials=4, min_passes=2)
    search = Search(
        name="null", question="?", scale=Scale.SMOKE, data={"name": "digits", "num_val": 10},
        metric="val/accuracy", passes=8, seeds=(0, 1),
        arms=(
            Arm(name="random", config=config, algorithm=RandomSearch(num_trials=4), space=space),
            Arm(name="asha", config=config, algorithm=asha, space=space),
            Arm(name="none", config=config),
        ),
    )  # fmt: skip
    root = tmp_path_factory.mktemp("runs")
    made = runs.create(root, search, command="", commit="", versions={}, storage=None)
    executors.execute(search, folder=made.folder, executor="local", workers=1)
    return api.Results(made)


@pytest.mark.parametrize("name", ["optuna.db", "optuna.log"])
def test_optuna_opens_our_runs(results: api.Results, tmp_path: Path, name: str) -> None:
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


def test_frames_go_through_files(results: api.Results, tmp_path: Path) -> None:
    for to, read in {"csv": pd.read_csv, "parquet": pd.read_parquet}.items():
        trials, steps = (read(path) for path in results.export(to, tmp_path))
        assert trials["val/accuracy"].tolist() == results.trials["val/accuracy"].tolist()
        assert list(trials) == list(results.trials)
        assert steps["value"].tolist() == results.steps["value"].tolist()
    with pytest.raises(UnknownNameError, match="Did you mean `parquet`"):
        results.export("parquett")


def test_any_algorithm_runs_on_a_table(results: api.Results, tmp_path: Path) -> None:
    [path] = results.export("table")
    assert path.parent == results.run.folder / "export"
    found = curves.read(path)
    assert found.passes == (2, 4, 6, 8)
    algorithms = {
        "random": RandomSearch(num_trials=6),
        "tpe": Tpe(num_trials=6, batch=2, num_startup=2),
        "asha": Asha(num_trials=6, min_passes=2),
    }
    search = tabulated.search_on(path, algorithms)
    executors.execute(search, folder=tmp_path, executor="local", workers=1)
    made = frames.trials(tmp_path / "journal.jsonl")
    assert set(made["outcome"]) == {"finished", "stopped"}
    for row in made[made["outcome"] == "finished"].to_dict("records"):
        values = {name: row[f"param.values.{name}"] for name in ("x", "seconds")}
        index = tabulated.nearest(found, values)
        assert row["val/accuracy"] == found.at(index, 8)
    from tuneparts.journal import Journal

    assert Plan(search, Journal(tmp_path / "journal.jsonl")).done


def test_the_nearest_is_by_the_range_of_each_value() -> None:
    frame = pd.DataFrame({"a": [0.0, 100.0], "b": [0.0, 1.0], "c": ["x", "y"]})
    found = curves.Curves(frame, (1,), frame[["a"]].to_numpy(), "val/nll")
    assert tabulated.nearest(found, {"a": 40.0}) == 0
    assert tabulated.nearest(found, {"a": 40.0, "b": 0.7}) == 1
    assert tabulated.nearest(found, {"a": 60.0, "c": "x"}) == 0
