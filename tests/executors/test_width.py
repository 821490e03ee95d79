"""How many trials run side by side decides a window once, and the run keeps it."""

import pytest

from tuneparts.executors.place import Place, fitted
from tuneparts.search.spec import Asha, Optuna, Resources, Tpe


def test_a_replicate_asks_for_some_more_than_its_share_of_the_room(null_search, null_arm) -> None:
    search = null_search(
        null_arm("tpe", algorithm=Tpe(num_trials=40)),
        null_arm("free", algorithm=Optuna(num_trials=40, timing="free")),
        null_arm("wide", algorithm=Tpe(num_trials=40), resources=Resources(cpus=4)),
        null_arm("few", algorithm=Tpe(num_trials=40), at_once=3),
        null_arm("given", algorithm=Tpe(num_trials=40, window=5)),
        null_arm("asha", algorithm=Asha(num_trials=4, min_passes=2)),
        seeds=(0, 1),
    )
    found = fitted(search, Place(is_local=True, cpus=16))
    windows = {arm.name: getattr(arm.algorithm, "window", None) for arm in found.arms}
    assert windows == {
        "tpe": 13, "free": 8, "wide": 5, "few": 5, "given": 5, "asha": None,
    }  # fmt: skip
    assert found.digest != search.digest
    assert fitted(found, Place(is_local=True, cpus=2)) == found
    assert fitted(search, Place(is_local=True, workers=6)).arm("tpe").algorithm.window == 8


def test_a_search_that_does_not_ask_stays_as_it_is(null_search, null_arm) -> None:
    search = null_search(null_arm("asha", algorithm=Asha(num_trials=4, min_passes=2)))
    assert fitted(search, Place(is_ray=True)) is search


@pytest.mark.parametrize("cpus", [0.5, 1.0])
def test_there_is_room_for_one_at_least(null_search, null_arm, cpus: float) -> None:
    search = null_search(null_arm("tpe", algorithm=Tpe(num_trials=4)))
    assert fitted(search, Place(is_local=True, cpus=cpus)).arm("tpe").algorithm.window == 1
