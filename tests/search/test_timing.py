"""Deterministic and asynchronous timing of a search that runs, dies and goes on."""

from pathlib import Path
from typing import Any

import pytest

from tests.search.playing import facts, play
from tuneparts.search.algorithms.halving import Asha
from tuneparts.search.events import ResultTold, TrialStarted
from tuneparts.search.journal import Journal
from tuneparts.search.plan import Plan
from tuneparts.search.segment import Segment
from tuneparts.search.spec import Search


def run_until(search: Search, path: Path, order: int, most: int | None = None) -> dict[str, Any]:
    """Complete so many segments in this order of trials, and leave the rest."""

    def row(one: Segment) -> dict[str, float]:
        return {"val/accuracy": float((37 * one.trial.index + 11 * one.until) % 101)}

    return facts(play(search, path, row, width=100, order=order, most=most))


def told(path: Path) -> list[tuple[str, int]]:
    events = Journal(path).events
    return [(str(e.trial), e.steps) for e in events if isinstance(e, ResultTold)]


@pytest.fixture
def searches(null_search, null_arm) -> Any:
    def make(timing: str) -> Search:
        asha = Asha(num_trials=24, min_steps=2, reduction=2, timing=timing)
        return null_search(null_arm("asha", algorithm=asha))

    return make


def test_deterministic_timing_does_not_depend_on_who_was_faster(searches, tmp_path) -> None:
    found = [run_until(searches("deterministic"), tmp_path / f"{i}", order=i) for i in range(4)]
    assert all(one == found[0] for one in found)


def test_asynchronous_timing_does(searches, tmp_path) -> None:
    found = [run_until(searches("asynchronous"), tmp_path / f"{i}", order=i) for i in range(4)]
    assert any(one != found[0] for one in found)


@pytest.mark.parametrize("most", [1, 5, 20, 30, 40])
def test_what_happened_is_repeated_in_its_order_after_a_crash(
    searches, tmp_path, most: int
) -> None:
    search, path = searches("asynchronous"), tmp_path / "journal.jsonl"
    run_until(search, path, order=1, most=most)
    before, text = told(path), path.read_text()
    assert before
    journal = Journal(path)
    starts = [event for event in journal.events if isinstance(event, TrialStarted)]
    Plan(search, journal)  # decides nothing anew
    assert [e for e in journal.events if isinstance(e, TrialStarted)] == starts
    journal.close()
    assert path.read_text() == text
    run_until(search, path, order=2)
    assert told(path)[: len(before)] == before


def test_a_journal_that_lost_its_end_is_decided_anew_from_there(searches, tmp_path) -> None:
    search, path = searches("asynchronous"), tmp_path / "journal.jsonl"
    run_until(search, path, order=1)
    lines = path.read_text().splitlines(keepends=True)
    for kept in range(30, len(lines), 7):
        path.write_text("".join(lines[:kept]))
        ends = {end[0] for _, _, end in run_until(search, path, order=3).values()}
        assert ends == {"finished", "stopped"}


def test_trials_that_go_on_run_before_those_that_wait_for_their_first_turn(
    searches, tmp_path
) -> None:
    plan = Plan(searches("asynchronous"), Journal(tmp_path / "journal.jsonl"))
    first = plan.next()
    assert first is not None
    plan.report(first, [{"val/accuracy": 0.5, "cost/steps": 2.0}])
    plan.complete(first, finished=False)
    again = plan.next()
    assert (again.trial, again.start) == (first.trial, 2)
