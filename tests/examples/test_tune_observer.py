"""The example of the MLflow callback, run small."""

from pathlib import Path

import pytest

from tuneparts.tracking import store

pytestmark = [pytest.mark.ray, pytest.mark.mlflow, pytest.mark.slow]


def test_a_plain_function_is_logged(local_ray, uri: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TUNEPARTS_TRACKING_URI", uri)
    monkeypatch.syspath_prepend(Path(__file__).parent.parent.parent / "examples")
    import tune_observer
    from ray import cloudpickle

    # Workers find the module of a script that was started, but not one that a test imports.
    cloudpickle.register_pickle_by_value(tune_observer)
    found = tune_observer.tuner(num_samples=2, storage_path=str(tmp_path), verbose=0).fit()
    assert not found.errors
    client = store.client(uri)
    experiment = client.get_experiment_by_name("heights").experiment_id
    runs = store._search(client, [experiment], "")
    trials = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    (parent,) = [run for run in runs if run not in trials]
    assert len(trials) == 2
    best = min(result.metrics["loss"] for result in found)
    assert parent.data.metrics["best/loss"] == best
    for run in trials:
        points = client.get_metric_history(run.info.run_id, "loss")
        assert [point.step for point in points] == [1, 2, 3, 4, 5]
        assert set(run.data.metrics) == {"loss"}
