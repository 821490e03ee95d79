"""Experiments of stock Tuners as runs of ours: frames, tables, verdicts, pages, MLflow."""

from pathlib import Path
from typing import Any

import pytest

import tuneparts
from tuneparts.core import settings
from tuneparts.core.errors import ConfigError, DataMissingError
from tuneparts.data.config import Data
from tuneparts.methods.baselines.config import Standard
from tuneparts.methods.partitioned.config import Partitioned
from tuneparts.nets import Mlp
from tuneparts.search.space import Choice, Int, Uniform
from tuneparts.tracking import store

pytestmark = [
    pytest.mark.ray, pytest.mark.mlflow, pytest.mark.slow, pytest.mark.usefixtures("results"),
]  # fmt: skip
DATA = Data(name="digits", num_train=60, num_val=40, num_test=40)


def good(at: dict[str, Any]) -> Any:
    for step in range(3):
        yield (at["x"] - 1) ** 2 + at["seed"] - step


def broken(at: dict[str, Any]) -> float:
    raise RuntimeError(f"no value at {at['x']}, password=hunter2hunter2")


@pytest.fixture(scope="module")
def tuned(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two methods and two seeds under ASHA, by a searcher of Tune."""
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    folder = tmp_path_factory.mktemp("tune")
    methods = {"standard": Standard(), "partitioned": Partitioned.published(train_on="train")}
    made = tuneparts.ray.trainable(
        methods, data=DATA, net=Mlp(widths=(8,)), steps=8, interval=2, hypers=tuneparts.Affine()
    )
    return tune.Tuner(
        made,
        param_space={
            "method": tune.grid_search(list(methods)),
            "seed": tune.grid_search([0, 1]),
            "lr": tune.grid_search([1e-4, 1e-1]),
        },
        tune_config=tune.TuneConfig(
            metric="val/accuracy", mode="max", scheduler=ASHAScheduler(max_t=4, grace_period=1)
        ),
        run_config=tune.RunConfig(storage_path=str(folder), name="My exp", verbose=0),
    ).fit()


def test_methods_are_arms_and_all_that_is_made_from_a_run_is_there(tuned: Any) -> None:
    results = tuneparts.ray.results(tuned, compare=("partitioned", "standard"))
    trials, search = results.trials, results.search
    assert results.name.startswith("my_exp/")
    assert search.metric == "val/accuracy"
    assert sorted(trials["trial"]) == sorted(
        f"{arm}/seed{seed}/{index:05d}"
        for arm in ("standard", "partitioned")
        for seed in (0, 1)
        for index in (0, 1)
    )
    assert set(trials["param.net.widths"].map(tuple)) == {(8,)}
    assert search.arm("standard").space == {"optimiser.lr": Uniform(1e-4, 1e-1, log=True)}
    assert set(results.drawn["name"]) == {"optimiser.lr"}
    for one in tuned:
        (own,) = trials[
            (trials["arm"] == one.config["method"])
            & (trials["seed"] == one.config["seed"])
            & (trials["param.optimiser.lr"] == one.config["lr"])
        ].to_dict("records")
        for metric in ("val/accuracy", "val/nll", "cost/steps", "cost/seconds"):
            assert own[metric] == one.metrics[metric]
        is_whole = one.metrics["cost/steps"] == 8
        assert own["outcome"] == ("finished" if is_whole else "stopped")
        steps = results.steps[results.steps["trial"] == own["trial"]]
        curve = steps[steps["metric"] == "val/nll"]
        assert list(curve["value"]) == list(one.metrics_dataframe["val/nll"].dropna())
        told = [time.timestamp() for time in curve["time"]]
        assert told == list(one.metrics_dataframe["timestamp"])
        assert (own["end"] - own["start"]).total_seconds() >= 0
    whole = trials[trials["outcome"] == "finished"]
    best = whole.groupby(["arm", "seed"])["val/accuracy"].max()
    chosen = results.selected.set_index(["arm", "seed"])["val/accuracy"]
    assert chosen.sort_index().equals(best.sort_index())
    assert results.table.set_index("arm")["expected"].to_dict() == {"standard": 4, "partitioned": 4}
    assert "partitioned" in results.answer
    assert results.metadata.data_draws == "fixed"
    assert results.report().is_file()
    assert results.export("csv")
    again = tuneparts.load(results.name)
    found = store.client(settings.current().tracking_uri).get_run(again.parent_run_id)
    assert found.info.status == "FINISHED"
    assert len(again.run_ids) == 8


def test_a_finished_experiment_is_read_from_its_path_into_one_run(tuned: Any) -> None:
    first = tuneparts.ray.results(tuned.experiment_path, metric="val/nll")
    again = tuneparts.ray.results(Path(tuned.experiment_path), metric="val/nll")
    assert again.name == first.name
    assert first.search.metric == "val/nll"
    assert again.trials.drop(columns="run_id").equals(first.trials.drop(columns="run_id"))
    assert tuneparts.ray.results(tuned, name="other").name.startswith("other/")


def test_a_trial_that_failed_counts_as_failed(local_ray: None, tmp_path: Path) -> None:
    from ray import tune

    made = tuneparts.ray.trainable({"good": good, "broken": broken}, steps=3)
    space = {"method": tune.grid_search(["good", "broken"]), "x": tune.grid_search([1, 3])}
    config = tune.RunConfig(storage_path=str(tmp_path), name="2nd", verbose=0)
    found = tune.Tuner(made, param_space=space, run_config=config).fit()
    results = tuneparts.ray.results(found)
    assert results.name.startswith("tune_2nd/")
    trials = results.trials.set_index(["arm", "index"])
    assert trials["outcome"].to_dict() == {
        ("broken", 0): "failed",
        ("broken", 1): "failed",
        ("good", 0): "finished",
        ("good", 1): "finished",
    }
    assert "no value at" in trials["error"]["broken", 0]
    assert "hunter2" not in str(trials["error"].to_list())
    assert results.search.arm("good").space == {"params.x": Int(1, 3)}
    assert results.selected["val/loss"].to_list() == [-2.0]
    assert results.table.set_index("arm")["failed"].to_dict() == {"good": 0, "broken": 2}


def test_what_is_no_experiment_of_ours_is_refused(local_ray: None, tmp_path: Path) -> None:
    from ray import tune

    with pytest.raises(DataMissingError, match="gone: no experiment of Ray Tune"):
        tuneparts.ray.results(tmp_path / "gone")
    config = tune.RunConfig(storage_path=str(tmp_path), name="theirs", verbose=0)
    theirs = tune.Tuner(lambda config: {"loss": 1.0}, run_config=config).fit()
    with pytest.raises(ConfigError, match=r"theirs: no trial .*tuneparts\.ray\.trainable"):
        tuneparts.ray.results(theirs)


def test_dimensions_are_what_was_tried() -> None:
    from tuneparts.ray._tune_results import _dimension

    assert _dimension([3, 1, 2]) == Int(1, 3)
    assert _dimension([0.5, 1]) == Uniform(0.5, 1)
    assert _dimension([True, False]) == Choice([True, False])
    assert _dimension(["a", None]) == Choice(["a", None])
