import io
import re
import time

import pytest
from rich.console import Console

from tuneparts.results.progress import _LiveView, clock
from tuneparts.search import load
from tuneparts.search.algorithms.halving import Asha
from tuneparts.search.arm import Arm
from tuneparts.search.events import (
    Row,
    TrialEnded,
    TrialId,
    TrialRetried,
    TrialRunning,
    TrialStarted,
)
from tuneparts.search.spec import Search


@pytest.fixture(scope="module")
def search() -> Search:
    return load.load("rotated_digits", scale="smoke")


@pytest.fixture
def view(search: Search) -> _LiveView:
    return _LiveView(search, Console(file=io.StringIO(), width=160, force_terminal=True))


def text(view: _LiveView, width: int = 160) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(view.render())
    return out.getvalue()


def line_of(view: _LiveView, arm: str) -> list[str]:
    (line,) = [line for line in text(view).splitlines() if arm in line.split()]
    return line.split()


def test_counts_best_and_share_follow_the_events(view: _LiveView) -> None:
    a, b = TrialId("random", 0, 0), TrialId("random", 0, 1)
    for trial in (a, b):
        view.on_event(TrialStarted(trial, {}, 0.0))
    view.on_event(Row(a, 10, {"val/accuracy": 0.25}, 0.0))
    view.on_event(Row(b, 10, {"val/accuracy": 0.75}, 0.0))
    # two of five trials of 20 steps each are half way: 20 of 100 steps
    assert view.fraction == pytest.approx(20 / (20 * 5))
    view.on_event(TrialEnded(a, "failed", 0.0, "why"))
    view.on_event(TrialEnded(b, "finished", 0.0))
    assert view.fraction == pytest.approx(40 / (20 * 5))
    words = line_of(view, "random")
    assert "0.7500" in words
    assert "1/2" in words
    assert words[2:4] == ["100", "%"]
    assert words[-2] == "1"  # failed
    view.on_event(TrialRetried(a, 0.0))
    assert view.fraction == pytest.approx((20 + 10) / (20 * 5))


def test_running_and_waiting_are_apart(view: _LiveView) -> None:
    trials = [TrialId("random", 0, index) for index in range(2)]
    for trial in trials:
        view.on_event(TrialStarted(trial, {}, 0.0))
    assert "2 waiting" in text(view)
    assert "running" not in text(view).splitlines()[1]
    view.on_event(TrialRunning(trials[0], 0.0))
    assert "1 running, 1 waiting" in text(view)
    assert line_of(view, "random")[4:6] == ["1", "1"]
    view.on_event(TrialEnded(trials[0], "finished", 0.0))
    assert "1 of 5 trials done, 1 waiting" in text(view)


def test_a_trial_at_a_rung_waits(null_search, null_arm) -> None:
    arm = null_arm("asha", algorithm=Asha(num_trials=4, min_steps=2))
    view = _LiveView(null_search(arm), Console(file=io.StringIO(), width=160))
    at_work = {"asha": 1}
    view.watch(lambda: at_work)
    for index in range(3):
        view.on_event(TrialStarted(TrialId("asha", 0, index), {}, 0.0))
        view.on_event(Row(TrialId("asha", 0, index), 2, {}, 0.0))
    assert "1 running, 2 waiting" in text(view)
    at_work["asha"] = 0
    assert "3 waiting" in text(view)


def test_an_arm_without_validation_data_shows_what_it_has(view: _LiveView) -> None:
    trial = TrialId("none", 0, 0)
    view.on_event(Row(trial, 5, {"train/loss": 2.25}, 0.0))
    assert line_of(view, "none")[-2:] == ["train/loss", "2.2500"]
    view.on_event(Row(trial, 10, {"train/loss": 2.0, "test/accuracy": 0.5}, 0.0))
    assert line_of(view, "none")[-2:] == ["test/accuracy", "0.5000"]
    view.on_event(Row(trial, 15, {"val/accuracy": 0.25, "test/accuracy": 0.6}, 0.0))
    assert line_of(view, "none")[-1] == "0.2500"


@pytest.fixture
def many(search: Search) -> Search:
    """One search with 21 arms."""
    config = search.arm("none").config
    arms = tuple(Arm(name=f"retrained_random_{i:02d}", config=config) for i in range(21))
    return search.model_copy(update={"arms": arms})


@pytest.mark.parametrize("width", [60, 80, 140])
def test_what_matters_is_seen_with_many_arms_on_a_small_terminal(many: Search, width: int) -> None:
    console = Console(file=io.StringIO(), width=width, height=24, force_terminal=True)
    view = _LiveView(many, console)
    later = time.time() + 1
    for index in range(3):
        view.on_event(TrialStarted(TrialId(f"retrained_random_{index:02d}", 0, 0), {}, later))
        view.on_event(TrialEnded(TrialId(f"retrained_random_{index:02d}", 0, 0), "finished", later))
    at_work = TrialId("retrained_random_20", 0, 0)
    view.on_event(TrialRunning(at_work, later))
    view.on_event(Row(at_work, 10, {"val/accuracy": 0.5}, later))
    shown = ["".join(part.text for part in line) for line in console.render_lines(view.render())]
    assert len(shown) < 24
    assert re.match(r" 16 %, .* elapsed, about .* left", shown[0])
    assert shown[1].startswith("3 of 21 trials done, 1 running")
    assert any("retrained_random_20" in line and "50 %" in line for line in shown)
    assert re.match(r"and \d+ more arms, 3 of them done", shown[-1])
    assert not any("…" in line for line in shown)
    roomy = Console(file=io.StringIO(), width=100, height=60)
    lines = roomy.render_lines(_LiveView(many, roomy).render())
    names = re.findall(
        r"retrained_random_\d\d", "".join(one.text for line in lines for one in line)
    )
    assert names == [arm.name for arm in many.arms]  # in their order where all fit


def test_a_resumed_run_counts_time_left_from_what_it_had(view: _LiveView) -> None:
    before, now = TrialId("none", 0, 0), TrialId("partitioned", 0, 0)
    view.on_event(TrialStarted(before, {}, 0.0))
    view.on_event(TrialEnded(before, "finished", 0.0))
    assert "left" not in text(view)
    later = time.time() + 1
    view.on_event(TrialStarted(now, {}, later))
    assert view._fraction_at_start == pytest.approx(1 / 5)
    view.on_event(Row(now, 10, {}, later))
    assert "left" in text(view)


def test_it_says_at_once_that_it_starts(search: Search) -> None:
    for is_terminal in (True, False):
        console = Console(file=io.StringIO(), width=80, force_terminal=is_terminal)
        with _LiveView(search, console, starting="starting Ray"):
            assert "starting Ray" in console.file.getvalue()
    view = _LiveView(search, console, starting="starting Ray")
    view.on_event(TrialRunning(TrialId("none", 0, 0), time.time() + 1))
    assert "starting" not in text(view)


def test_a_line_per_tenth_where_there_is_no_terminal(search: Search) -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    later = time.time() + 1
    with _LiveView(search, console) as view:
        view.on_event(Row(TrialId("none", 0, 0), 20, {}, 0.0))  # of a run that is resumed
        for arm in ("partitioned", "partitioned_retrained"):
            for step in range(1, 21):
                view.on_event(Row(TrialId(arm, 0, 0), step, {}, later))
            view.on_event(TrialEnded(TrialId(arm, 0, 0), "finished", later))
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "starting"
    assert [line[:5] for line in lines[1:]] == [" 30 %", " 40 %", " 50 %", " 60 %"]
    assert all("elapsed, about" in line and "running" in line for line in lines[1:])


def test_clock() -> None:
    assert [clock(s) for s in (5, 65, 3723)] == ["0:05", "1:05", "1:02:03"]
