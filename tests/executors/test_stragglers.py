"""A trial that takes far longer than the others of its arm is given up."""

from pathlib import Path

import pytest

from tuneparts.executors import Place, _driver, execute, logs
from tuneparts.executors._driver import FLOOR, overdue
from tuneparts.search.algorithms.base import GridSearch
from tuneparts.search.events import Row, TrialId
from tuneparts.search.journal import Journal, records
from tuneparts.search.segment import Segment
from tuneparts.search.space import Choice
from tuneparts.search.storage import Folder

LATE = Segment(trial=TrialId("arm", 0, 0), config={}, until=8)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl")


def add(journal: Journal, trial: TrialId, *seconds: float) -> None:
    for number, value in enumerate(seconds, start=1):
        journal.append(Row(trial, number, {"cost/seconds": value}, time=0.0))


def test_the_limit_is_a_multiple_of_the_longest_interval_of_the_others(journal, tmp_path) -> None:
    add(journal, TrialId("arm", 0, 1), 50.0, 150.0)  # intervals of 50 and 100 s
    add(journal, TrialId("arm", 1, 0), 20.0)
    add(journal, TrialId("arm", 0, 0), 500.0)  # its own do not count
    add(journal, TrialId("other", 0, 0), 900.0)
    assert overdue(journal, LATE, 999.0, str(tmp_path)) is None
    report = overdue(journal, LATE, 1001.0, str(tmp_path))
    assert report is not None
    assert report.done
    assert "HangError: an interval of `arm` ends within 1000 s" in str(report.failure)
    assert "10 times the longest" in logs.read(Folder(str(tmp_path)), LATE.trial)[-1]


def test_short_intervals_leave_ten_minutes(journal, tmp_path) -> None:
    add(journal, TrialId("arm", 0, 1), 0.1, 0.2, 0.3)
    assert overdue(journal, LATE, FLOOR - 1, str(tmp_path)) is None
    assert overdue(journal, LATE, FLOOR + 1, str(tmp_path)) is not None


def test_nothing_is_given_up_while_little_is_known(journal, tmp_path) -> None:
    add(journal, TrialId("arm", 0, 1), 0.1, 0.2)
    assert overdue(journal, LATE, 1e6, str(tmp_path)) is None


def test_a_pool_goes_on_without_it(null_search, null_arm, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(_driver, "FLOOR", 2.0)
    space = {"fault": Choice(options=("", "hang"))}
    arm = null_arm("arm", algorithm=GridSearch(), space=space)
    execute(null_search(arm), folder=tmp_path, place=Place("local", workers=2))
    good, late = records(tmp_path / "journal.jsonl").values()
    assert (good.end.outcome, late.end.outcome) == ("finished", "failed")
    assert "HangError" in late.end.message
    assert list(late.rows) == [2]
