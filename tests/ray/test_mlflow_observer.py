"""The observer, told what Tune tells a callback, and inside experiments that are cut off."""

import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tuneparts.core.errors import ConfigError
from tuneparts.tracking import store

pytestmark = [pytest.mark.ray, pytest.mark.mlflow]


@pytest.fixture
def observe(uri: str) -> Callable[..., Any]:
    from tuneparts.ray import MLflowObserver

    return lambda *words, **options: MLflowObserver(*words, tracking_uri=uri, **options)


@pytest.fixture
def make_trial(tmp_path: Path) -> Callable[..., Any]:
    """Makes what the observer asks of a trial of Tune."""
    from pyarrow.fs import LocalFileSystem

    def make(name: str, **config: Any) -> Any:
        class Trial(SimpleNamespace):
            def __str__(self) -> str:
                return f"train_{self.trial_id}"

        folder = SimpleNamespace(
            experiment_dir_name="exp",
            experiment_fs_path=str(tmp_path / "exp"),
            storage_filesystem=LocalFileSystem(),
        )
        return Trial(
            trial_id=name,
            trainable_name="train",
            config=config,
            storage=folder,
            error_file=str(tmp_path / f"{name}.txt"),
        )

    return make


def result(iteration: int, **metrics: Any) -> dict[str, Any]:
    tune_adds = {"pid": 7, "timestamp": 1, "time_total_s": 2.0, "config": {"lr": 1}, "done": False}
    return {"training_iteration": iteration, "trial_id": "x", **tune_adds, **metrics}


def runs(uri: str, experiment: str) -> dict[str, Any]:
    client = store.client(uri)
    found = client.get_experiment_by_name(experiment)
    return {run.info.run_name: run for run in store._search(client, [found.experiment_id], "")}


def steps(uri: str, run: Any, metric: str) -> list[tuple[int, float]]:
    history = store.client(uri).get_metric_history(run.info.run_id, metric)
    return [(point.step, point.value) for point in history]


def test_runs_are_nested_and_hold_what_trials_report(observe, make_trial, uri: str) -> None:
    observer = observe("mine", metric="loss", mode="min", tags={"team": "blue"})
    one, two = make_trial("a1", lr=0.1, net={"width": 8}, act=max), make_trial("b2", lr=0.2)
    (Path(two.error_file)).write_text("Traceback ...\nValueError: password=hunter2hunter2\n")
    for trial in (one, two):
        observer.on_trial_start(trial=trial)
    for step, loss in ((1, 0.5), (2, np.float32(0.25))):
        report = result(step, loss=loss, nested={"depth": step}, note="text", flag=True)
        observer.on_trial_result(trial=one, result=report)
    observer.on_trial_complete(trial=one)
    observer.on_trial_error(trial=two)
    observer.on_experiment_end(trials=[])

    found = runs(uri, "mine")
    first, second = found.pop("train_a1"), found.pop("train_b2")
    (parent,) = found.values()
    assert parent.info.run_id == observer.parent_run_id
    for run in (first, second):
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert run.data.tags["team"] == "blue"
    assert first.data.params["lr"] == "0.1"
    assert first.data.params["net.width"] == "8"
    assert "max" in first.data.params["act"]
    assert set(first.data.metrics) == {"loss", "nested/depth"}
    assert steps(uri, first, "loss") == [(1, 0.5), (2, 0.25)]
    assert [run.info.status for run in (parent, first, second)] == [
        "FINISHED",
        "FINISHED",
        "FAILED",
    ]
    assert "ValueError" in second.data.tags["error"]
    log = store.artifact_text(uri, second.info.run_id, "log.txt")
    assert log is not None
    assert "Traceback" in log
    assert "hunter2" not in log + second.data.tags["error"]
    assert parent.data.metrics["best/loss"] == 0.25
    assert parent.data.metrics["trials/failed"] == 1.0


def test_after_a_crash_the_same_runs_go_on(observe, make_trial, uri: str) -> None:
    """Tune pickles its callbacks, and asks the copy in the next process."""
    trial, other = make_trial("a1", lr=0.1), make_trial("b2", lr=0.2)
    first = observe("mine")
    again = pickle.loads(pickle.dumps(first))
    first.on_trial_start(trial=trial)
    first.on_trial_result(trial=trial, result=result(1, loss=0.5))
    first.on_experiment_end(trials=[])  # cut off: the trial has not ended
    assert runs(uri, "mine")["train_a1"].info.status == "KILLED"

    again.on_trial_start(trial=trial)
    again.on_trial_result(trial=trial, result=result(1, loss=0.5))  # repeated from the checkpoint
    again.on_trial_result(trial=trial, result=result(2, loss=0.25))
    again.on_trial_start(trial=other)
    for one in (trial, other):
        again.on_trial_complete(trial=one)
    again.on_experiment_end(trials=[])
    found = runs(uri, "mine")
    assert len(found) == 3
    assert {run.info.status for run in found.values()} == {"FINISHED"}
    assert steps(uri, found["train_a1"], "loss") == [(1, 0.5), (2, 0.25)]


def test_a_failed_trial_that_tune_starts_again_goes_on_in_its_run(
    observe, make_trial, uri: str
) -> None:
    """`Tuner.restore(restart_errored=True)`."""
    trial = make_trial("a1", lr=0.1)
    first = observe("mine")
    again = pickle.loads(pickle.dumps(first))
    first.on_trial_start(trial=trial)
    first.on_trial_result(trial=trial, result=result(1, loss=0.5))
    first.on_trial_error(trial=trial)
    first.on_experiment_end(trials=[])
    assert runs(uri, "mine")["train_a1"].info.status == "FAILED"
    again.on_trial_start(trial=trial)
    again.on_trial_result(trial=trial, result=result(2, loss=0.25))
    again.on_trial_complete(trial=trial)
    again.on_experiment_end(trials=[])
    found = runs(uri, "mine")
    assert len(found) == 2
    assert found["train_a1"].info.status == "FINISHED"
    assert steps(uri, found["train_a1"], "loss") == [(1, 0.5), (2, 0.25)]
    (parent,) = [run for run in found.values() if run is not found["train_a1"]]
    assert parent.data.metrics["trials/failed"] == 0.0
    assert parent.data.metrics["trials/finished"] == 1.0


def test_a_config_that_a_population_perturbs_is_a_metric(observe, make_trial, uri: str) -> None:
    observer = observe("mine")
    trial = make_trial("a1", lr=0.1, width=8)
    for step, lr in ((1, 0.1), (2, 0.2), (3, 0.4)):
        trial.config = {"lr": lr, "width": 8}
        observer.on_trial_start(trial=trial)
        observer.on_trial_result(trial=trial, result=result(step, loss=1.0))
    observer.on_trial_complete(trial=trial)
    observer.on_experiment_end(trials=[])
    run = runs(uri, "mine")["train_a1"]
    assert run.data.params["lr"] == "0.1"
    assert steps(uri, run, "config/lr") == [(0, 0.1), (1, 0.2), (2, 0.4)]
    assert "config/width" not in run.data.metrics


def test_an_experiment_of_others_keeps_its_description(observe, make_trial, uri: str) -> None:
    client = store.client(uri)
    theirs = client.create_experiment(
        "shared", store._artifact_root(uri), tags={"mlflow.note.content": "ours"}
    )
    observer = observe("shared")
    trial = make_trial("a1")
    observer.on_trial_start(trial=trial)
    observer.on_trial_complete(trial=trial)
    observer.on_experiment_end(trials=[])
    assert client.get_experiment(theirs).tags["mlflow.note.content"] == "ours"


def test_bad_input_is_refused_before_anything_runs(observe) -> None:
    from tuneparts.ray import MLflowObserver

    with pytest.raises(ConfigError, match="min"):
        observe(metric="loss")
    with pytest.raises(ConfigError, match="smallest"):
        observe(metric="loss", mode="smallest")
    with pytest.raises(ConfigError, match="database"):
        MLflowObserver(tracking_uri="file:///tmp/mlruns")


def test_an_experiment_without_trials_makes_no_run(observe) -> None:
    observer = observe("mine")
    observer.on_experiment_end(trials=[])
    assert observer.parent_run_id is None


@pytest.mark.slow
def test_a_restored_experiment_doubles_nothing(
    local_ray, observe, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off after some reports, and continued by `Tuner.restore`: two trials, two runs."""
    from ray import tune

    from tuneparts.data.config import Data
    from tuneparts.ray import trainable
    from tuneparts.testing.null import NullConfig

    monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", "0")
    data = Data(name="digits", num_train=20, num_val=10, num_test=10)
    null = trainable(NullConfig, data=data, steps=8, interval=2)

    class Cut(tune.Callback):  # type: ignore[misc]
        """Raises in the driver, once."""

        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any) -> None:
            flag = tmp_path / "cut"
            if result["training_iteration"] == 2 and not flag.exists():
                flag.touch()
                raise RuntimeError("the driver is gone")

    tuner = tune.Tuner(
        null,
        param_space={"seed": tune.grid_search([0, 1])},
        run_config=tune.RunConfig(
            name="exp",
            storage_path=str(tmp_path),
            callbacks=[observe("mine"), Cut()],
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
            verbose=0,
        ),
    )
    with pytest.raises(Exception, match="the driver is gone"):
        tuner.fit()
    path = str(tmp_path / "exp")
    found = tune.Tuner.restore(path, null, resume_unfinished=True, restart_errored=True).fit()
    assert not found.errors
    told = runs(uri, "mine")
    assert len(told) == 3
    trials = [run for run in told.values() if "mlflow.parentRunId" in run.data.tags]
    assert len(trials) == 2
    assert {run.info.status for run in told.values()} == {"FINISHED"}
    for run in trials:
        assert [step for step, _ in steps(uri, run, "cost/steps")] == [1, 2, 3, 4]
