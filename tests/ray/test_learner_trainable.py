"""Methods and objectives as ordinary trainables: by hand, and under stock schedulers of Tune."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tuneparts
from tests.harness.faulty import FaultyConfig
from tuneparts.core.errors import ConfigError
from tuneparts.data.config import Data
from tuneparts.methods.objective import Objective
from tuneparts.methods.partitioned.config import Partitioned
from tuneparts.search.arm import Resources
from tuneparts.testing.null import NullConfig

pytestmark = pytest.mark.ray
DATA = Data(name="digits", num_train=60, num_val=40, num_test=40)


def parabola(config: dict[str, Any]) -> Any:
    for step in range(3):
        yield {"val/loss": (config["x"] - 1) ** 2 + step}


class Descent:
    """An objective with a state."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.rate, self.height = config["rate"], 0.0

    def advance(self) -> float:
        self.height -= self.rate
        return self.height

    def state_dict(self) -> dict[str, float]:
        return {"height": self.height}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.height = state["height"]


@pytest.fixture
def trainable(local_ray: None) -> Any:  # a trainable puts its data into Ray's object store
    import tuneparts.ray

    return tuneparts.ray.trainable


def started(cls: Any, config: dict[str, Any]) -> Any:
    """A trainable as an actor has it, without Ray: `__init__` asks a running one."""
    worker = cls.__new__(cls)
    worker._trial_info = None
    worker.setup(config)
    return worker


def finish(worker: Any) -> list[dict[str, Any]]:
    rows = []
    while not rows or not rows[-1]["done"]:
        rows.append(worker.step())
    return [{key: row[key] for key in row if key != "cost/seconds"} for row in rows]


def test_keys_of_the_param_space_are_fields_of_the_config(trainable) -> None:
    from tuneparts.ray._learner_trainable import configured

    arms = trainable("standard", data=DATA, steps=8, interval=4).arms
    base = arms["standard"].config
    assert (base.steps, base.interval) == (8, 4)
    given = {"optimiser.lr": np.float64(0.5), "net": {"name": "mlp"}, "seed": np.int64(3)}
    arm, config, seed, changes = configured(arms, given, 0)
    assert changes == {"optimiser.lr": 0.5, "net.name": "mlp"}
    assert (arm, config.optimiser.lr, config.net.name, seed) == ("standard", 0.5, "mlp", 3)
    assert type(config.optimiser.lr) is float
    assert configured(arms, {"lr": 0.5}, 0)[1].optimiser.lr == 0.5
    assert configured(arms, {"method": "standard"}, 7) == ("standard", base, 7, {})


def test_several_methods_are_one_trainable(trainable) -> None:
    from tuneparts.ray._learner_trainable import configured

    methods = {"Plain": "standard", "parts": Partitioned(interval=3)}
    cls = trainable(methods, data=DATA, steps=20, batch_size=10)
    assert cls.__name__ == "Plain_parts"
    arms = {key: (arm.name, arm.config.interval) for key, arm in cls.arms.items()}
    assert arms == {"Plain": ("plain", 2), "parts": ("parts", 3)}
    for key in methods:
        _, config, seed, _ = configured(cls.arms, {"method": key, "seed": 1, "lr": 0.5}, 0)
        assert (config.steps, config.batch_size, config.optimiser.lr, seed) == (20, 10, 0.5, 1)
    rows = finish(started(cls, {"method": "Plain", "lr": 0.5}))
    assert [row["cost/steps"] for row in rows] == list(range(2, 21, 2))
    with pytest.raises(LookupError, match=r"`part`.*parts"):
        cls.default_resource_request({"method": "part"})
    with pytest.raises(LookupError, match="method"):
        cls.default_resource_request({"lr": 0.5})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"optimiser.learning_rate": 0.1}, "learning_rate"),
        ({"optimizer": {"lr": 0.1}}, "optimizer"),
        ({"optimiser.lr": "fast"}, "optimiser"),
        ({"seed": 0.5}, "seed"),
    ],
)
def test_a_wrong_key_is_refused_where_tune_asks_in_the_driver(trainable, config, message) -> None:
    standard = trainable("standard", data=DATA)
    with pytest.raises(ConfigError, match=message):
        standard.default_resource_request(config)


def test_what_is_no_method_is_refused(trainable) -> None:
    with pytest.raises(ConfigError, match="learns from data"):
        trainable("standard")
    with pytest.raises(ConfigError, match=r"`steps`"):
        trainable("standard", data=DATA, pases=8)
    with pytest.raises(LookupError, match="partitioned"):
        trainable("partitoned", data=DATA)
    with pytest.raises(ConfigError, match="a method's name, a config class"):
        trainable(7)


def test_a_trial_reserves_what_it_is_given(trainable) -> None:
    half = trainable(NullConfig, data=DATA, resources=Resources(cpus=2, gpus=0.5))
    assert half.default_resource_request({}).bundles == [{"CPU": 2.0, "GPU": 0.5}]


@pytest.mark.parametrize("method", ["standard", "partitioned"])
def test_a_checkpoint_continues_bit_for_bit(trainable, tmp_path: Path, method: str) -> None:
    cls = trainable(method, data=DATA, steps=6, interval=2)
    config = {"optimiser.lr": 0.05, "seed": 1}
    whole = finish(started(cls, config))
    assert [row["cost/steps"] for row in whole] == [2, 4, 6]
    assert [row["done"] for row in whole] == [False, False, True]
    first = started(cls, config)
    first.step()
    first.save_checkpoint(str(tmp_path))
    again = started(cls, config)
    again.load_checkpoint(str(tmp_path))
    assert finish(again) == whole[1:]


def test_a_reused_actor_and_a_copied_state_take_the_new_config(trainable, tmp_path: Path) -> None:
    """What population-based training does: state of one trial, config of another."""
    cls = trainable("standard", data=DATA, steps=6, interval=2)
    donor = started(cls, {"optimiser.lr": 0.05})
    donor.step()
    donor.save_checkpoint(str(tmp_path))
    fresh = started(cls, {"optimiser.lr": 0.01})
    fresh.load_checkpoint(str(tmp_path))
    reused = started(cls, {"optimiser.lr": 0.5})
    reused.step()
    assert reused.reset_config({"optimiser.lr": 0.01})
    reused.load_checkpoint(str(tmp_path))
    expected = finish(fresh)
    assert finish(reused) == expected
    assert expected != finish(donor)


def test_a_checkpoint_of_a_finished_trial_reports_its_end_again(trainable, tmp_path: Path) -> None:
    cls = trainable("standard", data=DATA, steps=4, interval=2)
    worker = started(cls, {})
    last = finish(worker)[-1]
    worker.save_checkpoint(str(tmp_path))
    again = started(cls, {})
    again.load_checkpoint(str(tmp_path))
    assert finish(again) == [last]


def test_own_methods_by_class_config_and_path(trainable) -> None:
    path = f"{FaultyConfig.__module__}:{FaultyConfig.__qualname__}"
    for method in (FaultyConfig, FaultyConfig(), path):
        cls = trainable(method, data=DATA, steps=4, interval=2)
        assert cls.__name__ == "FaultyConfig"
        assert len(finish(started(cls, {"x": 0.5}))) == 2


def test_an_objective_is_called_with_the_keys_of_the_space(trainable) -> None:
    reports = {"val/loss": "min"}
    config = Objective(function=parabola, reports=reports, steps=3)
    for cls in (trainable(parabola, reports=reports, steps=3), trainable(config)):
        assert cls.__name__ == "parabola"
        rows = finish(started(cls, {"x": 3.0}))
        assert [row["val/loss"] for row in rows] == [4.0, 5.0, 6.0]


@pytest.mark.slow
@pytest.mark.mlflow
@pytest.mark.usefixtures("results")
def test_stock_pbt_copies_states_and_perturbs_configs(trainable, tmp_path: Path) -> None:
    from ray import tune
    from ray.tune.schedulers import PopulationBasedTraining

    pbt = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=1,
        hyperparam_mutations={"rate": [1.0]},
        resample_probability=1.0,
        quantile_fraction=0.5,
        synch=True,
    )
    found = tune.Tuner(
        trainable(Descent, reports={"val/height": "min"}, steps=3),
        param_space={"rate": tune.grid_search([0.0, 1.0])},
        tune_config=tune.TuneConfig(
            metric="val/height", mode="min", scheduler=pbt, reuse_actors=True
        ),
        run_config=tune.RunConfig(storage_path=str(tmp_path), name="pbt", verbose=0),
    ).fit()
    assert not found.errors
    # The one that stood still took over the state and the rate of the other after one report.
    assert [one.config["rate"] for one in found] == [1.0, 1.0]
    assert [one.metrics["val/height"] for one in found] == [-3.0, -3.0]
    own = tuneparts.ray.results(found, metric="val/height")
    assert set(own.schedules["path"]) == {"params.rate"}
    ((_, changed),) = own.schedules.groupby("trial")
    assert list(zip(changed["steps"], changed["value"], strict=True)) == [(0, 0.0), (1, 1.0)]
