import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneparts.core.errors import PlacementError
from tuneparts.executors.place import GIB, bundle, describe, refuse_unplaceable, slots
from tuneparts.search.spec import Resources

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
    with pytest.raises(PlacementError, match=r"3 bundles .* `a` need CPU 5 .* has CPU 4"):
        refuse_unplaceable({"a": trial}, [{"CPU": 2.0}, {"CPU": 2.0}])
