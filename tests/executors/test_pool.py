"""The pool of workers, with Ray replaced by a list of what it was asked for."""

import time
from pathlib import Path
from typing import Any

import pytest
from tuneparts.executors.ray.pool import Pool
from tuneparts.executors.staffing import Post, Shape

from tuneparts.core.errors import PlacementError, WorkerError
from tuneparts.executors.packed import deliver_all
from tuneparts.executors.ray import cluster, pool
from tuneparts.executors.worker import Report
from tuneparts.search.groups import Group, Groups
from tuneparts.search.journal import Journal
from tuneparts.search.plan import Plan
from tuneparts.search.spec import Asha, RandomSearch, Resources

pytestmark = pytest.mark.ray
ONE = [{"CPU": 1.0}]


class FakeWorker(Post):
    """A worker whose process is a list of reports."""

    made: list["FakeWorker"]

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.group: Group | None = None
        self.since = time.monotonic()
        self.waited_for = object()
        self.is_ended = False
        self.num_segments = 0
        self.made.append(self)

    def prepare(self, _: Any) -> None:
        pass

    def get_ready(self) -> None:
        self.nodes = ("a",) * len(self.shape)

    def take(self, group: Group) -> None:
        self.group, self.is_busy = group, True
        self.waited_for = object()
        self.num_segments += 1

    def hear(self) -> list[Report] | None:
        assert self.group is not None
        (segment,) = self.group.segments
        row = {"val/accuracy": segment.config["x"], "cost/passes": float(segment.until)}
        self.group, self.is_busy = None, False
        return [Report([row], done=True, finished=segment.until == 8)]

    def end(self) -> None:
        self.is_ended = True


@pytest.fixture
def world(monkeypatch) -> dict[str, Any]:
    """Nodes that the test can change, and what the autoscaler was asked for."""
    found: dict[str, Any] = {"nodes": {"a": {"CPU": 4.0}}, "asked": []}
    FakeWorker.made = []
    monkeypatch.setattr(pool, "Worker", FakeWorker)
    monkeypatch.setattr(pool, "LOOK", 0.0)
    monkeypatch.setattr(cluster, "LOOK", 0.01)
    monkeypatch.setattr(cluster, "nodes", lambda: found["nodes"])
    monkeypatch.setattr(cluster, "request", found["asked"].append)
    monkeypatch.setattr(cluster, "has_autoscaler", lambda: True)
    monkeypatch.setattr("ray.put", lambda value: value)
    monkeypatch.setattr("ray.wait", lambda things, **_: (things, []))
    return found


def a_plan(folder: Path, search: Any) -> Plan:
    return Plan(search, Journal(folder / "journal.jsonl"))


def run(plan: Plan, workers: Pool) -> None:
    setting: Any = "setting"
    groups = Groups(plan)
    with workers:
        workers.use(setting)
        while not plan.done:
            workers.hand_out(plan, groups)
            for _, group, reports in workers.news():
                assert reports is not None
                deliver_all(groups, group, reports)


def test_the_same_workers_serve_all_rungs(world, null_search, null_arm, tmp_path) -> None:
    arm = null_arm("asha", algorithm=Asha(num_trials=16, min_passes=2, reduction=2))
    plan = a_plan(tmp_path, null_search(arm))
    run(plan, Pool({"asha": ONE}))
    assert len(FakeWorker.made) == 4
    assert all(worker.is_ended for worker in FakeWorker.made)
    assert sum(worker.num_segments for worker in FakeWorker.made) > 16


def test_no_more_workers_than_segments_or_cpus(world, null_search, null_arm, tmp_path) -> None:
    arm = null_arm("random", algorithm=RandomSearch(num_trials=2))
    run(a_plan(tmp_path / "few", null_search(arm)), Pool({"random": ONE}))
    assert len(FakeWorker.made) == 2
    arm = null_arm("random", algorithm=RandomSearch(num_trials=20))
    run(a_plan(tmp_path / "many", null_search(arm)), Pool({"random": ONE}, cpus=3))
    assert len(FakeWorker.made) == 2 + 3


def test_an_idle_worker_whose_node_has_left_is_forgotten(
    world, null_search, null_arm, tmp_path
) -> None:
    plan = a_plan(tmp_path, null_search(null_arm("random", algorithm=RandomSearch(num_trials=4))))
    workers = Pool({"random": ONE})
    workers.hand_out(plan, Groups(plan))
    assert len(workers.workers) == 4
    for worker in workers.workers:
        worker.get_ready()
    world["nodes"] = {"b": {"CPU": 1.0}}
    workers.hand_out(plan, Groups(plan))
    assert [worker.is_ended for worker in FakeWorker.made] == [True] * 4 + [False]


def test_workers_that_never_start_end_the_search_with_a_sentence(
    world, null_search, null_arm, tmp_path, monkeypatch
) -> None:
    from ray.exceptions import RayActorError

    def fail(_: FakeWorker) -> None:
        raise RayActorError(error_msg="no module named mine")

    monkeypatch.setattr(FakeWorker, "get_ready", fail)
    monkeypatch.setattr(
        FakeWorker, "since", property(lambda _: 1e12, lambda *_: None), raising=False
    )
    plan = a_plan(tmp_path, null_search(null_arm("fixed")))
    with pytest.raises(WorkerError, match=r"6 in a row did not: no module named mine"):
        run(plan, Pool({"fixed": ONE}))


def test_the_autoscaler_is_asked_for_what_waits_and_told_when_all_is_done(
    world, null_search, null_arm, tmp_path
) -> None:
    arm = null_arm("random", algorithm=RandomSearch(num_trials=6), at_once=5)
    run(a_plan(tmp_path, null_search(arm)), Pool({"random": ONE}, can_grow=True))
    assert world["asked"][0] == [[{"CPU": 1.0}]] * 5
    assert world["asked"][-1] == []
    world["asked"].clear()
    run(a_plan(tmp_path / "cpus", null_search(arm)), Pool({"random": ONE}, can_grow=True, cpus=2))
    assert max(len(one) for one in world["asked"]) == 2


def test_a_cluster_without_nodes_is_asked_and_waited_for(world, capsys, monkeypatch) -> None:
    calls = iter([{}, {}, {"a": {"CPU": 2.0}}])
    world["nodes"] = {}
    monkeypatch.setattr(cluster, "nodes", lambda: next(calls))
    cluster.await_room({"arm": ONE}, limit=60.0)
    assert world["asked"] == [[ONE]]
    assert "waiting 60 s at most for nodes: a trial must fit one node" in capsys.readouterr().err


def test_nobody_waits_where_nothing_adds_nodes(world, monkeypatch) -> None:
    world["nodes"] = {"head": {"CPU": 0.0}}
    monkeypatch.setattr(cluster, "has_autoscaler", lambda: False)
    with pytest.raises(PlacementError, match="needs CPU 1 and the cluster has CPU 0"):
        cluster.await_room({"arm": ONE}, limit=900.0)
    assert world["asked"] == []


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, True),
        (b"no json", True),
        (b'{"time": 1.0}', True),
        (b'{"autoscaler_report": {"node_type_mapping": {}}}', True),
        (b'{"autoscaler_report": {"node_type_mapping": {"a1": "node_a1", "b": "node_b"}}}', False),
        (b'{"autoscaler_report": {"node_type_mapping": {"10.0.0.1": "ray.head"}}}', True),
    ],
)
def test_an_autoscaler_names_types_of_nodes(monkeypatch, status, expected: bool) -> None:
    monkeypatch.setattr("ray.experimental.internal_kv._internal_kv_get", lambda _: status)
    assert cluster.has_autoscaler() is expected


def test_nodes_that_do_not_come_are_a_refusal(world) -> None:
    world["nodes"] = {"head": {"CPU": 0.0}}
    with pytest.raises(PlacementError, match="needs CPU 1 and the cluster has CPU 0"):
        cluster.await_room({"arm": ONE}, limit=0.05)
    assert world["asked"] == [[ONE]]
    with pytest.raises(PlacementError):
        cluster.await_room({"arm": ONE}, limit=0.0)
    assert len(world["asked"]) == 1


def test_arms_without_a_gpu_run_beside_those_that_wait_for_one(
    world, null_search, null_arm, tmp_path
) -> None:
    world["nodes"] = {"a": {"CPU": 4.0, "GPU": 1.0}}
    random = RandomSearch(num_trials=12)
    arms = [
        null_arm("g", algorithm=random, resources=Resources(gpus=1)),
        null_arm("c", algorithm=random),
    ]
    needs = {"g": [{"CPU": 1.0, "GPU": 1.0}], "c": ONE}
    run(a_plan(tmp_path, null_search(*arms)), Pool(needs))
    served = {dict(worker.shape[0]).get("GPU", 0.0): worker for worker in FakeWorker.made}
    assert served[1.0].num_segments == 12
    assert sum(worker.num_segments == 4 for worker in FakeWorker.made) == 3
