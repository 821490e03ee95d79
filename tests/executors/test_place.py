"""Which executor runs a search, what its trials reserve, and how many fit at once."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneparts.cli._running import place_of
from tuneparts.core.errors import ConfigError, PlacementError
from tuneparts.executors.place import (
    GIB,
    MOST_LOCAL_TRIALS,
    Place,
    _suited,
    bundle,
    describe,
    fitted,
    refuse_unplaceable,
    slots,
)
from tuneparts.search import load
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.algorithms.halving import Asha
from tuneparts.search.algorithms.sampler import Optuna, Tpe
from tuneparts.search.arm import Resources


def test_the_number_of_trials_decides(null_search, null_arm) -> None:
    def of(num_trials: int, **fields: object) -> str:
        arm = null_arm("a", algorithm=RandomSearch(num_trials=num_trials))
        return _suited(null_search(arm, **fields))

    assert of(MOST_LOCAL_TRIALS) == "local"
    assert of(MOST_LOCAL_TRIALS + 1) == "ray"
    assert of(MOST_LOCAL_TRIALS // 2 + 1, seeds=(0, 1)) == "ray"


@pytest.mark.parametrize("resources", [Resources(gpus=0.5), Resources(custom={"big": 1.0})])
def test_gpus_and_a_clusters_own_resources_are_rays(null_search, null_arm, resources) -> None:
    assert _suited(null_search(null_arm("a", resources=resources))) == "ray"


def test_learners_that_run_tasks_need_ray() -> None:
    search = load.load("federated_mnist", scale="smoke")
    arm = next(arm for arm in search.arms if arm.config.model_dump()["method"] == "federated")
    tasks = arm.replaced({"config": {**arm.config.model_dump(), "tasks": {"num_tasks": 2}}})
    assert _suited(search.model_copy(update={"arms": (tasks,)})) == "ray"


def test_the_command_line_can_say_otherwise(null_search, null_arm) -> None:
    small = null_search(null_arm("a"))
    places = Place(), Place("local"), Place("ray"), Place(address="host:6379")
    found = [place.settled(small).executor for place in places]
    assert found == ["local", "local", "ray", "ray"]
    large = null_search(null_arm("a", algorithm=RandomSearch(num_trials=1000)))
    assert Place("local").settled(large).executor == "local"
    assert Place().settled(large).executor == "ray"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"executor": "local", "address": "h:1"}, "address = h:1: the local executor joins no"),
        ({"executor": "ray", "workers": 2}, "workers = 2: Ray places as many"),
        ({"workers": 0}, "workers = 0: must be positive"),
        ({"cpus": 0}, "cpus = 0: must be positive"),
    ],
)
def test_a_contradiction_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Place(**fields)


@pytest.mark.parametrize("other", ["--ray", "--address"])
def test_flags_that_contradict_each_other_are_refused(other: str) -> None:
    with pytest.raises(ConfigError, match=f"without Ray, but got `{other}` too"):
        place_of("h:1" if other == "--address" else None, local=True, ray=other == "--ray", cpus=1)


NODES = [{"CPU": 8.0, "GPU": 1.0, "memory": 16 * GIB}, {"CPU": 2.0, "memory": 64 * GIB, "ssd": 1.0}]


def test_a_bundle_names_what_ray_knows() -> None:
    resources = Resources(cpus=2, gpus=0.25, memory_gb=1.5, custom={"ssd": 1})
    assert bundle(resources) == {"CPU": 2, "GPU": 0.25, "memory": 1.5 * GIB, "ssd": 1}
    assert bundle(Resources()) == {"CPU": 1}
    assert describe(bundle(resources)) == "2 CPU, 1 ssd, 0.25 GPU, 1.5 GB"


@pytest.mark.parametrize(
    ("need", "expected"),
    [
        (Resources(cpus=1), 10),
        (Resources(cpus=3), 2),
        (Resources(cpus=1, gpus=0.25), 4),
        (Resources(cpus=1, gpus=1 / 3), 3),
        (Resources(cpus=1, gpus=0.3), 3),
        (Resources(cpus=4, gpus=0.25), 2),
        (Resources(cpus=1, memory_gb=8), 2 + 2),
        (Resources(cpus=1, custom={"ssd": 0.5}), 2),
        (Resources(cpus=9), 0),
        (Resources(cpus=1, custom={"ssd": 2}), 0),
    ],
)
def test_slots(need: Resources, expected: int) -> None:
    assert slots([bundle(need)], NODES) == expected


@given(st.integers(1, 40), st.integers(1, 16), st.integers(1, 8))
def test_slots_against_placing_one_after_the_other(quarters: int, cpus: int, gpus: int) -> None:
    need, node = {"CPU": quarters / 4, "GPU": 0.25}, {"CPU": float(cpus), "GPU": float(gpus)}
    free, placed = dict(node), 0
    while all(free[name] >= amount for name, amount in need.items()):
        free = {name: free[name] - need[name] for name in free}
        placed += 1
    assert slots([need], [node]) == placed
    assert slots([need], [node, node]) == 2 * placed


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        (Resources(custom={"ssd": 2}), r"`a` needs ssd 2 and the cluster has ssd 1 on a node\."),
        (Resources(cpus=9), r"needs CPU 9 and the cluster has CPU 8"),
        (Resources(memory_gb=65), r"needs memory 65 GB and the cluster has memory 64 GB"),
        (Resources(custom={"tpu": 1}), r"needs tpu 1 and the cluster has tpu 0"),
        (Resources(gpus=1, custom={"ssd": 1}), r"though no node has them all together"),
        (Resources(cpus=4, memory_gb=32), r"CPU 4, memory 32 GB .* no node has them all"),
    ],
)
def test_what_no_node_can_hold_is_refused(resources: Resources, message: str) -> None:
    refuse_unplaceable({"a": [bundle(Resources())]}, NODES)
    with pytest.raises(PlacementError, match=message):
        refuse_unplaceable({"fine": [{"CPU": 1.0}], "a": [bundle(resources)]}, NODES)


def test_many_small_nodes_do_not_make_a_large_one() -> None:
    with pytest.raises(PlacementError, match="GPU 4 and the cluster has GPU 1"):
        refuse_unplaceable({"a": [{"CPU": 1.0, "GPU": 4.0}]}, [{"CPU": 8.0, "GPU": 1.0}] * 4)
    with pytest.raises(PlacementError, match="CPU 0"):
        refuse_unplaceable({"a": [{"CPU": 1.0}]}, [])


def test_bundles_of_a_trial_may_lie_apart_but_must_fit_together() -> None:
    trial = [{"CPU": 1.0}, {"CPU": 2.0}, {"CPU": 2.0}]
    nodes = [{"CPU": 3.0}, {"CPU": 3.0}]
    assert slots(trial, nodes) == 1
    assert slots(trial, nodes * 2) == 2
    with pytest.raises(PlacementError, match=r"`a`: the 3 bundles .* need CPU 5 .* has CPU 4"):
        refuse_unplaceable({"a": trial}, [{"CPU": 2.0}, {"CPU": 2.0}])


def test_a_replicate_asks_for_some_more_than_its_share_of_the_room(null_search, null_arm) -> None:
    search = null_search(
        null_arm("tpe", algorithm=Tpe(num_trials=40)),
        null_arm("free", algorithm=Optuna(num_trials=40, timing="asynchronous")),
        null_arm("wide", algorithm=Tpe(num_trials=40), resources=Resources(cpus=4)),
        null_arm("few", algorithm=Tpe(num_trials=40), at_once=3),
        null_arm("given", algorithm=Tpe(num_trials=40, window=5)),
        null_arm("asha", algorithm=Asha(num_trials=4, min_steps=2)),
        seeds=(0, 1),
    )
    found = fitted(search, Place("local", cpus=16))
    windows = {arm.name: getattr(arm.algorithm, "window", None) for arm in found.arms}
    assert windows == {
        "tpe": 13, "free": 8, "wide": 5, "few": 5, "given": 5, "asha": None,
    }  # fmt: skip
    assert found.digest != search.digest
    assert fitted(found, Place("local", cpus=2)) == found
    assert fitted(search, Place("local", workers=6)).arm("tpe").algorithm.window == 8


def test_a_search_that_does_not_ask_stays_as_it_is(null_search, null_arm) -> None:
    search = null_search(null_arm("asha", algorithm=Asha(num_trials=4, min_steps=2)))
    assert fitted(search, Place("ray")) is search


@pytest.mark.parametrize("cpus", [0.5, 1.0])
def test_there_is_room_for_one_at_least(null_search, null_arm, cpus: float) -> None:
    search = null_search(null_arm("tpe", algorithm=Tpe(num_trials=4)))
    assert fitted(search, Place("local", cpus=cpus)).arm("tpe").algorithm.window == 1
