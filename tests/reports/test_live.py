import io
import time

import pytest
from rich.console import Console

from tuneparts.journal import Row, TrialEnded, TrialId, TrialRunning, TrialStarted
from tuneparts.reports.live import LiveView
from tuneparts.search import load


@pytest.fixture
def view() -> LiveView:
    search = load.load("rotated_digits", scale="smoke")
    return LiveView(search, Console(file=io.StringIO(), width=160, force_terminal=False))


def text(view: LiveView) -> str:
    out = io.StringIO()
    Console(file=out, width=160).print(view.render())
    return out.getvalue()


def test_counts_best_and_share_follow_the_events(view: LiveView) -> None:
    a, b = TrialId("random", 0, 0), TrialId("random", 0, 1)
    for trial in (a, b):
        view.on_event(TrialStarted(trial, {}, 0.0))
    view.on_event(Row(a, 10, {"val/accuracy": 0.25}, 0.0))
    view.on_event(Row(b, 10, {"val/accuracy": 0.75}, 0.0))
    # two of six trials of 20 passes each are half way: 20 of 120 passes
    assert view.fraction == pytest.approx(20 / (20 * 6))
    view.on_event(TrialEnded(a, "failed", 0.0, "why"))
    view.on_event(TrialEnded(b, "finished", 0.0))
    assert view.fraction == pytest.approx(40 / (20 * 6))
    (line,) = [line for line in text(view).splitlines() if "random" in line]
    assert "0.7500" in line
    assert "1/2" in line
    assert line.split()[-2] == "1"  # failed


def test_a_trial_runs_once_a_worker_has_it(view: LiveView) -> None:
    trials = [TrialId("random", 0, index) for index in range(2)]

    def running() -> str:
        (line,) = [line for line in text(view).splitlines() if "random" in line]
        return line.split()[2]

    for trial in trials:
        view.on_event(TrialStarted(trial, {}, 0.0))
    assert running() == "0/2"  # nothing stands in the column
    view.on_event(TrialRunning(trials[0], 0.0))
    assert running() == "1"
    view.on_event(TrialEnded(trials[0], "finished", 0.0))
    assert running() == "1/2"


def test_a_resumed_run_counts_time_left_from_what_it_had(view: LiveView) -> None:
    before, now = TrialId("none", 0, 0), TrialId("partitioned", 0, 0)
    view.on_event(TrialStarted(before, {}, 0.0))
    view.on_event(TrialEnded(before, "finished", 0.0))
    assert "left" not in text(view)
    later = time.time() + 1
    view.on_event(TrialStarted(now, {}, later))
    assert view._fraction_at_start == pytest.approx(1 / 6)
    view.on_event(Row(now, 10, {}, later))
    assert "left" in text(view)


def test_it_is_silent_where_nobody_looks(view: LiveView) -> None:
    with view:
        view.on_event(TrialStarted(TrialId("none", 0, 0), {}, 0.0))
    assert view._console.file.getvalue() == ""
