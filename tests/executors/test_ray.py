"""The Ray executor: its loop over reports without Ray, and its tasks on a real one."""

import json
import subprocess
import sys
import time
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.executors.test_local import facts
from tests.harness.faulty import FaultyConfig
from tests.harness.scene import Cluster, python_path
from tuneparts.core.errors import StorageError, WorkerError
from tuneparts.executors import Place, execute
from tuneparts.executors import _driver as driver
from tuneparts.executors._driver import Groups, Job
from tuneparts.executors.ray import cluster, tasks
from tuneparts.executors.worker import Report
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.arm import Resources
from tuneparts.search.events import TrialId
from tuneparts.search.journal import Journal
from tuneparts.search.plan import Plan
from tuneparts.search.segment import Group

pytestmark = pytest.mark.ray
ONE = [{"CPU": 1.0}]
TRIALS = [TrialId("random", 0, number) for number in range(2)]


def a_plan(search: Any, folder: Path) -> Plan:
    return Plan(search, Journal(folder / "journal.jsonl"))


@pytest.fixture
def plan(null_search, null_arm, tmp_path) -> Plan:
    return a_plan(null_search(null_arm("random", algorithm=RandomSearch(num_trials=2))), tmp_path)


def row(steps: int) -> dict[str, float]:
    return {"cost/steps": float(steps), "val/accuracy": 0.5}


LAST = Report([row(8)], done=True, finished=True)


class ScriptedPool:
    """Each job brings the next of these reports; None says that it was lost."""

    storage = ""

    def __init__(self, *scripts: list[Report | None]) -> None:
        self.scripts = list(scripts)
        self.num_ended = 0

    def open_arms(self, jobs: Sequence[Job]) -> Container[str] | None:
        return None if self.scripts else ()

    def submit(self, group: Group) -> Job:
        job = Job(group)
        job.script = [[], *([one] if one else WorkerError("lost") for one in self.scripts.pop(0))]
        return job

    def wait(self, jobs: Sequence[Job]) -> Iterator[tuple[Any, Any]]:
        for job in list(jobs):
            for news in job.script:
                yield job, news
            job.script = []

    def end(self, _: Any) -> None:
        self.num_ended += 1


def drive(plan: Plan, *scripts: list[Report | None]) -> ScriptedPool:
    pool = ScriptedPool(*scripts)
    for _ in driver.drive(plan, pool):
        pass
    return pool


def test_what_workers_report_reaches_the_plan(plan) -> None:
    failed = Report([row(2)], done=True, failure="ValueError: x", leave=True)
    tasks = drive(plan, [Report([row(2)]), LAST], [failed])
    records = [plan.journal.trials[trial] for trial in TRIALS]
    assert [list(record.rows) for record in records] == [[2, 8], [2]]
    assert [record.end.outcome for record in records] == ["finished", "failed"]
    assert records[1].end.message == "ValueError: x"
    assert tasks.num_ended == 1  # its process may be damaged


@pytest.mark.parametrize(
    ("scripts", "outcome"),
    [
        ([[None], [LAST], [None], [None], [LAST]], "finished"),
        ([[None], [LAST], [None], [None], [None]], "failed"),
        ([[Report([row(1)]), None], [LAST], *[[Report([row(n)]), None] for n in (2, 3, 4, 5)],
          [LAST]], "finished"),
    ],
    ids=["three losses", "four losses", "losses with progress in between"],
)  # fmt: skip
def test_a_lost_segment_runs_again_until_its_losses_are_too_many(
    plan, scripts: list[list[Report | None]], outcome: str
) -> None:
    drive(plan, *scripts)
    end = plan.journal.trials[TRIALS[0]].end
    assert end.outcome == outcome
    assert outcome == "finished" or "died 4 times" in end.message


def test_a_full_disk_stops_the_search_and_ends_no_trial(plan) -> None:
    full = Report(done=True, disk_full="No space left")
    with pytest.raises(StorageError, match="tuneparts resume"):
        drive(plan, [full], [LAST])
    assert [plan.journal.trials[trial].end for trial in TRIALS] == [None, None]


class FakeRay:
    """A Ray that never has a place: the groups that it was given only wait."""

    def __init__(self, monkeypatch, *, grows: bool) -> None:
        self.num_given = 0
        monkeypatch.setattr(tasks.ray, "remote", lambda **_: lambda _: self)
        monkeypatch.setattr(cluster, "_has_autoscaler", lambda: grows)
        monkeypatch.setattr(cluster, "nodes", lambda: {"a": {"CPU": 4.0}})

    def options(self, **_: Any) -> "FakeRay":
        return self

    def remote(self, *_: Any) -> object:
        self.num_given += 1
        return object()


@pytest.mark.parametrize(
    ("grows", "cpus", "begun", "expected"),
    [(False, None, 0, 2), (False, 1.0, 0, 1), (False, None, 5, 7), (True, None, 5, 10)],
)
def test_few_tasks_wait_and_where_nodes_can_be_added_as_many_as_run(
    null_search, null_arm, tmp_path, monkeypatch, grows, cpus, begun, expected
) -> None:
    ray = FakeRay(monkeypatch, grows=grows)
    arm = null_arm("random", algorithm=RandomSearch(num_trials=40))
    pool = tasks._Tasks({"random": ONE}, "", cpus=cpus)
    groups, jobs = Groups(a_plan(null_search(arm), tmp_path)), list[Any]()

    def hand_over() -> None:
        while (group := groups.take(pool.open_arms(jobs))) is not None:
            jobs.append(pool.submit(group))

    while sum(job.has_begun for job in jobs) < begun:
        hand_over()
        next(job for job in jobs if not job.has_begun).has_begun = True
    hand_over()
    assert len(jobs) == ray.num_given == expected


def test_an_arm_that_waits_for_a_gpu_holds_up_no_other(
    null_search, null_arm, tmp_path, monkeypatch
) -> None:
    ray = FakeRay(monkeypatch, grows=False)
    random = RandomSearch(num_trials=12)
    arms = [
        null_arm("g", algorithm=random, resources=Resources(gpus=1)),
        null_arm("c", algorithm=random),
    ]
    needs = {"g": [{"CPU": 1.0, "GPU": 1.0}], "c": ONE}
    pool, groups = tasks._Tasks(needs, ""), Groups(a_plan(null_search(*arms), tmp_path))
    jobs: list[Any] = []
    while (group := groups.take(pool.open_arms(jobs))) is not None:
        jobs.append(pool.submit(group))
    assert ray.num_given == 4
    assert [job.arm for job in jobs] == ["g", "g", "c", "c"]


def test_workers_that_never_start_end_the_search_with_a_sentence(
    plan, local_ray, monkeypatch
) -> None:
    def fail(*_: Any) -> Iterator[Any]:
        raise ModuleNotFoundError("no module named mine")
        yield

    monkeypatch.setattr(tasks, "_train", fail)
    with pytest.raises(WorkerError, match=r"6 times in a row: .*no module named mine"):
        list(driver.drive(plan, tasks._Tasks({"random": ONE}, "")))


def test_processes_are_kept_between_trials_and_searches(
    local_ray, null_search, null_arm, tmp_path
) -> None:
    arm = null_arm("random", algorithm=RandomSearch(num_trials=8))
    for name in ("one", "two"):
        execute(null_search(arm), folder=tmp_path / name, place=Place("ray"))
    logs = [path.read_text() for path in tmp_path.glob("*/trials/random/seed0/*/log/log.txt")]
    assert len(logs) == 16
    assert len({text.partition("process ")[2].partition(",")[0] for text in logs}) <= 3


def test_idle_processes_hold_nothing_of_a_node(local_ray, null_search, null_arm, tmp_path) -> None:
    import ray

    execute(null_search(null_arm("fixed")), folder=tmp_path, place=Place("ray"))
    end = time.monotonic() + 20
    while ray.available_resources().get("CPU") != 2.0 and time.monotonic() < end:
        time.sleep(0.1)
    assert ray.available_resources()["CPU"] == 2.0


def test_gpus_are_found_among_those_that_a_process_sees() -> None:
    assert tasks._gpu_index(3, None) == 3
    assert tasks._gpu_index("3", "2,3") == 1
    assert cluster.options({"CPU": 1.0, "GPU": 0.5, "spot": 1.0}) == {
        "num_cpus": 1.0,
        "num_gpus": 0.5,
        "resources": {"spot": 1.0},
        "runtime_env": {"env_vars": {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}},
    }


DRIVER = """
import sys
from pathlib import Path
from tests.executors.test_ray import shared_search
from tuneparts.executors import Place, execute
print(execute(shared_search(), folder=Path(sys.argv[1]), place=Place("ray", sys.argv[2])))
"""


def shared_search() -> Any:
    from tuneparts.data.config import Data
    from tuneparts.search.algorithms.halving import Asha
    from tuneparts.search.arm import Arm
    from tuneparts.search.space import Uniform
    from tuneparts.search.spec import Scale, Search

    arm = Arm(
        name="asha",
        config=FaultyConfig(steps=8, interval=2, seconds=0.1),
        algorithm=Asha(num_trials=6, min_steps=2, reduction=2),
        space={"x": Uniform(low=0.0, high=1.0)},
    )
    return Search(
        name="shared",
        question="Do two drivers share a cluster?",
        scale=Scale.SMOKE,
        data=Data(name="digits", num_train=20, num_val=10, num_test=10),
        metric="val/accuracy",
        steps=8,
        seeds=(0,),
        arms=(arm,),
    )


@pytest.mark.timeout(300)
def test_two_drivers_share_a_cluster(tmp_path: Path, monkeypatch) -> None:
    execute(shared_search(), folder=tmp_path / "alone", place=Place("local", workers=1))
    shared = Cluster()
    try:
        shared.start(nodes=2)
        monkeypatch.setenv("TUNEPARTS_RAY_TOKEN_FILE", str(shared.token))
        monkeypatch.setenv("RAY_AUTH_MODE", "token")  # the drivers import Ray before they join
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(shared.token))
        monkeypatch.setenv("PYTHONPATH", python_path())
        drivers = [
            subprocess.Popen(
                [sys.executable, "-c", DRIVER, str(tmp_path / name), shared.address],
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in ("one", "two")
        ]
        said = [driver.communicate()[0].split()[-1:] for driver in drivers]
    finally:
        shared.kill()
        shared._folder.cleanup()
    assert said == [["done"], ["done"]]
    assert facts(tmp_path / "one") == facts(tmp_path / "two") == facts(tmp_path / "alone")
    times = [
        [json.loads(line).get("time", 0.0) for line in path.read_text().splitlines()[1:]]
        for path in (tmp_path / "one/journal.jsonl", tmp_path / "two/journal.jsonl")
    ]
    assert max(times[0]) > min(t for t in times[1] if t)  # they ran at the same time
