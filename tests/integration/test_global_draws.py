"""Code that draws from the global generators: the same numbers on every executor, after any cut."""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tuneparts.core import schema
from tuneparts.data.task import NO_DATA
from tuneparts.executors import Place, _local, execute
from tuneparts.executors.setting import TrialSetting
from tuneparts.methods.objective import Objective
from tuneparts.results import verifying
from tuneparts.search import runs
from tuneparts.search.algorithms.base import Fixed, RandomSearch
from tuneparts.search.arm import Arm
from tuneparts.search.journal import Journal, records
from tuneparts.search.plan import Plan
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Scale, Search
from tuneparts.training.config import Method
from tuneparts.training.learner import Context, Learner

METRICS = ("val/python", "val/numpy", "val/torch")


@pytest.fixture(autouse=True)
def own_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test declares is forgotten after it."""
    monkeypatch.setattr(schema, "METRICS", dict(schema.METRICS))


def draws() -> dict[str, float]:
    numbers = random.random(), np.random.rand(), torch.rand((), dtype=torch.float64).item()
    return dict(zip(METRICS, numbers, strict=True))


def once(config: dict[str, Any]) -> dict[str, float]:
    return draws()


def careless(config: dict[str, Any]) -> dict[str, float]:
    """Leaves its own seeds behind."""
    found = draws()
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    return found


def again_and_again(config: dict[str, Any]) -> Iterator[dict[str, float]]:
    while True:
        yield draws()


def reporting(config: dict[str, Any], report: Any) -> None:
    while True:
        report(draws())


class Kept:
    """An objective with a state, which its random start is not a part of."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.start, self.height = draws(), 0.0

    def advance(self) -> dict[str, float]:
        self.height += 1
        return {name: self.height + self.start[name] * value for name, value in draws().items()}

    def state_dict(self) -> dict[str, float]:
        return {"height": self.height}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.height = state["height"]


class OwnConfig(Method):
    """A method that initialises and trains by the global generators."""

    steps: int = 4
    interval: int = 1
    needs_data = False
    metrics = tuple(schema.Metric(name, schema.Direction.DOWN, "", 4, "a draw") for name in METRICS)

    def build(self, context: Context) -> Learner:
        return OwnLearner(self)  # type: ignore[return-value]


class OwnLearner:
    def __init__(self, config: OwnConfig) -> None:
        self.config, self.steps = config, 0
        self.layer = nn.Linear(1, 1)

    @property
    def finished(self) -> bool:
        return self.steps >= self.config.steps

    def advance(self) -> dict[str, float]:
        self.steps += 1
        found = {name: value + self.layer.weight.item() for name, value in draws().items()}
        return {**found, "cost/steps": float(self.steps)}

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: Any) -> None:
        self.steps = state["steps"]

    def artifacts(self) -> dict[str, Any]:
        return {}


def search_of(function: Any, algorithm: Any = None, **options: Any) -> Search:
    reports = dict.fromkeys(METRICS, "min")
    config = (
        OwnConfig()
        if function is OwnConfig
        else Objective(function=function, reports=reports, params={"x": 0.0}, **options)
    )
    algorithm = algorithm or Fixed()
    space = {} if isinstance(algorithm, Fixed) else {"params.x": Uniform(low=0, high=1)}
    arm = Arm(name="arm", config=config, algorithm=algorithm, space=space)
    return Search(
        name="drawn",
        question="?",
        scale=Scale.CPU,
        metric=METRICS[0],
        steps=config.steps,
        seeds=(0, 1),
        arms=(arm,),
    )


def run(search: Search, folder: Path, **options: Any) -> dict[str, Any]:
    place = Place(**({"executor": "local", "workers": 1} | options))
    assert execute(search, folder=folder, place=place) == "done"
    return facts(folder)


def facts(folder: Path) -> dict[str, Any]:
    return {
        f"{trial} {step}": tuple(row.metrics[name] for name in METRICS)
        for trial, record in sorted(records(folder / "journal.jsonl").items())
        for step, row in sorted(record.rows.items())
    }


def test_trials_and_seeds_differ_and_a_rerun_does_not(tmp_path: Path) -> None:
    search = search_of(once, RandomSearch(num_trials=3))
    found = run(search, tmp_path / "one")
    assert len(found) == 6
    assert len(set(itertools.chain(*found.values()))) == 18
    assert run(search, tmp_path / "two") == found
    other = search.model_copy(update={"name": "other"})
    assert not set(run(other, tmp_path / "other").values()) & set(found.values())


def test_seeds_of_one_trial_do_not_reach_the_next(tmp_path: Path) -> None:
    whole = run(search_of(careless, RandomSearch(num_trials=3)), tmp_path / "careless")
    assert whole == run(search_of(once, RandomSearch(num_trials=3)), tmp_path / "once")


@pytest.mark.parametrize("function", [again_and_again, OwnConfig])
def test_a_pool_draws_what_this_process_draws(function: Any, tmp_path: Path) -> None:
    search = search_of(function, steps=4)
    found = run(search, tmp_path / "one")
    assert len(set(itertools.chain(*found.values()))) == 24
    assert run(search, tmp_path / "two", workers=2) == found


@pytest.mark.parametrize("cut_after", [1, 2, 6])
@pytest.mark.parametrize("interval", [1, 3])
@pytest.mark.parametrize("function", [again_and_again, reporting, Kept, OwnConfig])
def test_a_cut_changes_no_draw(
    function: Any, interval: int, cut_after: int, tmp_path: Path
) -> None:
    search = search_of(function, steps=8, interval=interval)
    whole = run(search, tmp_path / "whole")
    folder = tmp_path / "cut"
    folder.mkdir()
    journal = Journal(folder / "journal.jsonl")
    setting = TrialSetting.of(search, runs.default_storage(folder))
    list(itertools.islice(_local.in_this_process(Plan(search, journal), setting), cut_after))
    journal.close()
    assert run(search, folder) == whole


def test_the_caller_s_generators_are_left_alone(tmp_path: Path) -> None:
    def state() -> Any:
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    before = state()
    run(search_of(careless, RandomSearch(num_trials=2)), tmp_path)
    assert state() == before


def test_verifying_draws_the_same(tmp_path: Path) -> None:
    search = search_of(again_and_again, steps=4)
    made = runs.create(tmp_path, search, command="", commit="", versions={}, storage=None)
    run(search, made.folder)
    found = list(verifying.verify(made))
    assert len(found) == 2
    assert not any(one.differences or one.failure for one in found)


@pytest.mark.ray
@pytest.mark.parametrize("function", [careless, OwnConfig])
def test_ray_draws_what_this_process_draws(function: Any, local_ray, tmp_path: Path) -> None:
    search = search_of(function, None if function is OwnConfig else RandomSearch(num_trials=3))
    found = run(search, tmp_path / "one")
    assert run(search, tmp_path / "ray", executor="ray", workers=None) == found


@pytest.mark.ray
def test_trials_of_a_tuner_draw_by_seed_and_number(monkeypatch) -> None:
    import tuneparts.ray

    cls = tuneparts.ray.trainable(again_and_again, reports=dict.fromkeys(METRICS, "min"), steps=4)

    def drawn(trial: str, seed: int, start: int = 0) -> list[tuple[float, ...]]:
        worker = cls.__new__(cls)
        worker._trial_info = None
        monkeypatch.setattr(cls, "trial_id", trial)
        worker.setup({"x": 0.0, "seed": seed})
        rows = [worker.step() for _ in range(4)]
        return [tuple(row[name] for name in METRICS) for row in rows]

    before = torch.get_rng_state()
    found = drawn("a1b2c_00000", seed=0)
    assert torch.equal(before, torch.get_rng_state())
    assert drawn("d3e4f_00000", seed=0) == found  # another experiment with the same trial
    others = [drawn("a1b2c_00001", seed=0), drawn("a1b2c_00000", seed=1)]
    assert len({row for rows in (found, *others) for row in rows}) == 12


def test_a_learner_of_no_trial_can_be_built_by_hand() -> None:
    learner: Any = OwnConfig().build(Context(task=NO_DATA, seed=0, device=torch.device("cpu")))
    assert set(METRICS) < set(learner.advance())
