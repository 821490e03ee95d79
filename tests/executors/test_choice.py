"""Small searches run without Ray; large ones, and what only Ray can run, on it."""

import pytest

from tuneparts.core.errors import ConfigError
from tuneparts.executors.place import MOST_LOCAL_TRIALS, Place, suited
from tuneparts.search import load
from tuneparts.search.spec import RandomSearch, Resources


def test_the_number_of_trials_decides(null_search, null_arm) -> None:
    def of(num_trials: int, **fields: object) -> str:
        arm = null_arm("a", algorithm=RandomSearch(num_trials=num_trials))
        return suited(null_search(arm, **fields))

    assert of(MOST_LOCAL_TRIALS) == "local"
    assert of(MOST_LOCAL_TRIALS + 1) == "ray"
    assert of(MOST_LOCAL_TRIALS // 2 + 1, seeds=(0, 1)) == "ray"


@pytest.mark.parametrize("resources", [Resources(gpus=0.5), Resources(custom={"big": 1.0})])
def test_gpus_and_a_clusters_own_resources_are_rays(null_search, null_arm, resources) -> None:
    assert suited(null_search(null_arm("a", resources=resources))) == "ray"


def test_learners_that_run_tasks_need_ray() -> None:
    search = load.load("federated_mnist", scale="smoke")
    arm = next(arm for arm in search.arms if arm.config.model_dump()["method"] == "federated")
    tasks = arm.replaced({"config": {**arm.config.model_dump(), "tasks": {"num_tasks": 2}}})
    assert suited(search.model_copy(update={"arms": (tasks,)})) == "ray"


def test_the_command_line_can_say_otherwise(null_search, null_arm) -> None:
    small = null_search(null_arm("a"))
    assert Place().executor(small) == Place(is_local=True).executor(small) == "local"
    assert Place(is_ray=True).executor(small) == Place("host:6379").executor(small) == "ray"
    large = null_search(null_arm("a", algorithm=RandomSearch(num_trials=1000)))
    assert Place(is_local=True).executor(large) == "local"


@pytest.mark.parametrize(
    ("place", "word"),
    [(Place(is_local=True, is_ray=True), "--ray"), (Place("h:1", is_local=True), "--address")],
)
def test_a_contradiction_is_refused(null_search, null_arm, place: Place, word: str) -> None:
    with pytest.raises(ConfigError, match=f"without Ray, but got `{word}` too"):
        place.executor(null_search(null_arm("a")))
