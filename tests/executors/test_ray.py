"""The Ray executor without a cluster: its loop over reports, and the trainable."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.faulty import FaultyConfig
from tuneparts.core.errors import ConfigError, StorageError
from tuneparts.data.task import Task
from tuneparts.executors.ray import executor
from tuneparts.executors.worker import Report, TrialSetting
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.events import TrialId
from tuneparts.search.groups import Group, Groups
from tuneparts.search.journal import Journal
from tuneparts.search.plan import Plan
from tuneparts.search.segment import Segment

pytestmark = pytest.mark.ray
TRIALS = [TrialId("random", 0, number) for number in range(2)]


@pytest.fixture
def plan(null_search, null_arm, tmp_path) -> Plan:
    arm = null_arm("random", algorithm=RandomSearch(num_trials=2))
    return Plan(null_search(arm), Journal(tmp_path / "journal.jsonl"))


def row(passes: int) -> dict[str, float]:
    return {"cost/passes": float(passes), "val/accuracy": 0.5}


LAST = Report([row(8)], done=True, finished=True)


class ScriptedPool:
    """Stands for a pool: each segment that is handed out brings the next of these reports."""

    def __init__(self, *scripts: list[Report | None]) -> None:
        self.scripts = list(scripts)
        self.given: list[tuple[Group, list[Report | None]]] = []
        self.num_dropped = 0
        self.is_ready = False
        self.is_open = True

    def __call__(self, *_: Any, **__: Any) -> "ScriptedPool":
        return self

    def __enter__(self) -> "ScriptedPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.is_open = False

    def use(self, _: Any) -> None:
        self.is_ready = True

    def hand_out(self, _: Plan, groups: Groups) -> None:
        while self.is_ready and self.scripts and (group := groups.take()) is not None:
            self.given.append((group, self.scripts.pop(0)))

    def news(self) -> Iterator[tuple[Any, Group, list[Report] | None]]:
        given, self.given = self.given, []
        for group, script in given:
            for report in script:
                yield "worker", group, None if report is None else [report]

    def silent(self) -> list[Any]:
        return []

    def drop(self, _: Any) -> None:
        self.num_dropped += 1


def drive(plan: Plan, monkeypatch, *scripts: list[Report | None]) -> ScriptedPool:
    pool = ScriptedPool(*scripts)
    monkeypatch.setattr("tuneparts.executors.ray.pool.Pool", pool)
    setting: Any = None
    executor.drive(plan, lambda: setting)
    assert not pool.is_open
    return pool


def test_what_workers_report_reaches_the_plan(plan, monkeypatch) -> None:
    failed = Report([row(2)], done=True, failure="ValueError: x")
    drive(plan, monkeypatch, [Report([row(2)]), LAST], [failed])
    records = [plan.journal.trials[trial] for trial in TRIALS]
    assert [list(record.rows) for record in records] == [[2, 8], [2]]
    assert [record.end.outcome for record in records] == ["finished", "failed"]
    assert records[1].end.message == "ValueError: x"


def test_a_segment_is_run_again_when_its_worker_is_lost(plan, monkeypatch) -> None:
    pool = drive(plan, monkeypatch, [None], [LAST], [None], [None], [LAST])
    assert pool.num_dropped == 3
    assert [plan.journal.trials[trial].end.outcome for trial in TRIALS] == ["finished"] * 2


def test_the_fourth_loss_without_progress_fails_the_trial(plan, monkeypatch) -> None:
    drive(plan, monkeypatch, [None], [LAST], *[[None]] * 3)
    assert "died 4 times" in plan.journal.trials[TRIALS[0]].end.message


def test_who_gets_further_between_losses_may_be_lost_more_often(plan, monkeypatch) -> None:
    lost = [[Report([row(number)]), None] for number in (1, 2, 3, 4, 5, 6)]
    drive(plan, monkeypatch, lost[0], [LAST], *lost[1:], [LAST])
    assert plan.journal.trials[TRIALS[0]].end.outcome == "finished"


def test_a_full_disk_stops_the_search_and_ends_no_trial(plan, monkeypatch) -> None:
    full = Report(done=True, disk_full="No space left")
    with pytest.raises(StorageError, match="tuneparts resume"):
        drive(plan, monkeypatch, [full], [LAST])
    assert [plan.journal.trials[trial].end for trial in TRIALS] == [None, None]


def test_a_search_needs_cpus(null_search, null_arm, tmp_path) -> None:
    from tuneparts.executors import execute

    with pytest.raises(ConfigError, match="trials need CPUs to run on, but got `cpus=0`"):
        execute(null_search(null_arm("fixed")), folder=tmp_path, cpus=0)


def test_the_trainable_runs_one_segment_after_another(tmp_path: Path, monkeypatch) -> None:
    from tuneparts.executors.ray.trainable import LearnerTrainable

    def config(index: int) -> dict[str, Any]:
        plain = FaultyConfig(passes=4, interval=2).model_dump(mode="json")
        segment = Segment(trial=TrialId("arm", 0, index), config=plain, until=4)
        return {"segments": [segment.to_json()], "packed": 1, "threads": 1, "gpus": 0.0}

    task: Any = Task  # null learners do not look at it
    worker = a_worker(TrialSetting(task, str(tmp_path), False, 60.0))
    assert isinstance(worker, LearnerTrainable)
    for index in range(2):
        results = [report for (report,) in worker.run(config(index))]
        assert [report.rows[0]["cost/passes"] for report in results] == [2, 4]
        assert [(one.done, one.finished) for one in results] == [(False, False), (True, True)]
        assert (tmp_path / f"arm/seed0/0000{index}").is_dir()
    monkeypatch.setattr("tuneparts.search.checkpoints.CheckpointStore.find", _is_away)
    assert list(worker.run(config(2))) == []  # no exception, which Ray would write down


def a_worker(setting: TrialSetting) -> Any:
    from tuneparts.executors.ray.trainable import LearnerTrainable

    worker = LearnerTrainable.__new__(LearnerTrainable)  # `__init__` asks a running Ray
    worker._setting = setting
    return worker


def _is_away(*_: Any) -> None:
    raise OSError("the store is away")
