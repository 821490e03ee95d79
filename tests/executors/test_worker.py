"""Executing segments: what is reported, what is kept, and what a second execution makes of it."""

import errno
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.harness.faulty import FaultyConfig
from tuneparts.core.errors import DataMissingError, StorageError
from tuneparts.data.task import Task
from tuneparts.executors import logs
from tuneparts.executors.setting import TrialSetting, restore_learner
from tuneparts.executors.worker import Report, _SegmentExecution
from tuneparts.search.checkpoints import CheckpointStore
from tuneparts.search.events import TrialId
from tuneparts.search.journal import Journal
from tuneparts.search.plan import Plan
from tuneparts.search.segment import Segment
from tuneparts.search.storage import Folder, is_disk_full, is_transient

TRIAL = TrialId("arm", 0, 0)


@pytest.fixture
def setting(tmp_path: Path) -> TrialSetting:
    task: Any = Task  # null learners do not look at it
    return TrialSetting(task, str(tmp_path), False, interval_limit=60.0)


def segment(until: int = 8, **fields: Any) -> Segment:
    config = FaultyConfig(steps=8, interval=2, **fields.pop("config", {}))
    return Segment(trial=TRIAL, config=config.model_dump(mode="json"), until=until, **fields)


def reports_of(execution: _SegmentExecution) -> list[Report]:
    reports = [execution.step()]
    while not reports[-1].done:
        reports.append(execution.step())
    return reports


def steps(reports: list[Report]) -> list[float]:
    return [row["cost/steps"] for report in reports for row in report.rows]


def test_each_step_is_one_interval(setting) -> None:
    reports = reports_of(_SegmentExecution(segment(), setting))
    assert [len(report.rows) for report in reports] == [1, 1, 1, 1]
    assert steps(reports) == [2, 4, 6, 8]
    assert [report.finished for report in reports] == [False, False, False, True]
    seconds = [report.rows[0]["cost/seconds"] for report in reports]
    assert seconds == sorted(seconds)


def test_a_segment_ends_where_it_should_and_the_next_goes_on(setting) -> None:
    first = reports_of(_SegmentExecution(segment(until=4), setting))
    assert steps(first) == [2, 4]
    assert not first[-1].finished
    second = reports_of(_SegmentExecution(segment(start=4, round=1), setting))
    assert steps(second) == [6, 8]
    assert second[-1].finished


def test_an_execution_that_was_cut_off_is_continued_and_reports_everything(setting) -> None:
    cut_off = _SegmentExecution(segment(), setting)
    cut_off.step()
    cut_off.step()
    again = _SegmentExecution(segment(), setting)
    first = again.step()
    assert steps([first]) == [2, 4, 6]
    assert steps([first, *reports_of(again)]) == [2, 4, 6, 8]


def test_a_segment_that_was_over_reports_its_rows_and_trains_no_more(setting) -> None:
    reports_of(_SegmentExecution(segment(), setting))
    (report,) = reports_of(_SegmentExecution(segment(), setting))
    assert steps([report]) == [2, 4, 6, 8]
    assert report.finished


def test_a_failure_is_reported_with_the_rows_before_it_and_logged(setting) -> None:
    broken = segment(config={"fault": "raise"})
    _SegmentExecution(broken, setting).step()
    (report,) = reports_of(_SegmentExecution(broken, setting))
    assert steps([report]) == [2]
    assert report.failure == "ValueError: asked to fail"
    text = "\n".join(logs.read(Folder(setting.storage), TRIAL))
    assert "FaultyConfig from 2 to 8 steps on " in text
    assert "Traceback" in text


def test_a_config_that_cannot_be_built_fails_its_trial(setting) -> None:
    wrong = Segment(trial=TRIAL, config={"method": "nothing", "steps": 8}, until=8)
    report = _SegmentExecution(wrong, setting).step()
    assert report.done
    assert "`nothing` is not a known method" in str(report.failure)


def test_an_interval_that_hung_before_fails(setting) -> None:
    _SegmentExecution(segment(), setting).step()
    CheckpointStore(Folder(setting.storage)).note_hang(segment(), 2)
    report = _SegmentExecution(segment(), setting).step()
    assert "HangError: an interval ends within 60 s, but the one after 2 steps" in str(
        report.failure
    )


@pytest.mark.parametrize("method", ["put", "find"])
def test_storage_that_is_away_is_no_failure_of_the_trial(setting, monkeypatch, method) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise OSError("away, says https://user:hunter2hunter2@host/")

    monkeypatch.setattr(CheckpointStore, method, away)
    with pytest.raises(StorageError, match="OSError: away") as caught:
        _SegmentExecution(segment(), setting).step()
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_full_disk_is_told_apart(setting, monkeypatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(CheckpointStore, "put", full)
    report = _SegmentExecution(segment(), setting).step()
    assert report.done
    assert report.failure is None
    assert "No space left" in str(report.disk_full)


def test_full_is_told_from_other_troubles() -> None:
    assert is_disk_full(OSError(errno.ENOSPC, "No space left on device"))
    assert is_disk_full(OSError("Error writing bytes. Detail: [errno 28] No space left on device"))
    assert is_disk_full(OSError(errno.EDQUOT, "Disk quota exceeded"))
    assert not is_disk_full(OSError(errno.EIO, "broken"))


def test_what_did_not_answer_is_told_from_what_will_not_change() -> None:
    caused = RuntimeError("boom")
    caused.__cause__ = TimeoutError()
    service = type("ServiceError", (Exception,), {"__module__": "botocore.exceptions"})
    away = [ConnectionError(), TimeoutError(), caused, service(), StorageError("x")]
    assert all(is_transient(error) for error in away)
    final = [ValueError(), MemoryError(), DataMissingError("none"), RuntimeError(), None]
    assert not any(is_transient(error) for error in final)


def test_a_process_in_which_something_unexpected_was_raised_is_left(setting) -> None:
    odd = _SegmentExecution(segment(config={"fault": "raise"}), setting)
    assert [report.leave for report in reports_of(odd)] == [False, True]
    wrong = Segment(trial=TrialId("arm", 0, 1), config={"method": "no", "steps": 8}, until=8)
    assert not _SegmentExecution(wrong, setting).step().leave  # our own sentence


def test_the_threads_of_a_trial_are_set(setting) -> None:
    before = torch.get_num_threads()
    try:
        _SegmentExecution(segment(), setting, threads=2).step()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.fixture
def plan(null_search, null_arm, tmp_path) -> Plan:
    return Plan(null_search(null_arm("arm")), Journal(tmp_path / "journal.jsonl"))


def test_a_plan_hears_rows_and_ends(plan) -> None:
    one = plan.next()
    row = {"cost/steps": 2.0, "val/accuracy": 0.5}
    plan.report(one, [row])
    assert not plan.done
    plan.report(one, [{**row, "cost/steps": 8.0}])
    plan.complete(one, finished=True)
    assert plan.done
    assert list(plan.journal.trials[TRIAL].rows) == [2, 8]
    assert plan.journal.trials[TRIAL].end.outcome == "finished"


def test_a_lost_worker_is_a_failure_that_counts_its_deaths(plan) -> None:
    for _ in range(3):
        assert plan.lost(plan.next())
    assert not plan.lost(plan.next())
    assert plan.journal.trials[TRIAL].end.outcome == "failed"
    assert "died 4 times; what it said" in plan.journal.trials[TRIAL].end.message


def test_a_learner_is_restored_in_its_last_state(null_search, null_arm, setting, tmp_path) -> None:
    search = null_search(null_arm("arm"))
    config = segment().config
    with pytest.raises(DataMissingError, match="arm/seed0/00000: it has no checkpoint"):
        restore_learner(search, str(tmp_path), TRIAL, config)
    reports_of(_SegmentExecution(segment(until=6), setting))
    assert restore_learner(search, str(tmp_path), TRIAL, config).steps == 6
