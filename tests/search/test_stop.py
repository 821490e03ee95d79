"""A search that stops: at the same place in any order of arrival and after any crash."""

import os
import threading
import time
from pathlib import Path

import pytest

from tests.search.playing import play
from tuneparts import executors
from tuneparts.cli import _running as verb
from tuneparts.core.errors import ConfigError
from tuneparts.executors.place import Place
from tuneparts.results.running import grow
from tuneparts.results.select import _select, _summarise
from tuneparts.results.tables import _stop_notes
from tuneparts.search import frames, runs, stopping
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.algorithms.halving import SuccessiveHalving
from tuneparts.search.algorithms.sampler import Tpe
from tuneparts.search.card import RunCard
from tuneparts.search.events import Row, TrialId
from tuneparts.search.journal import Journal
from tuneparts.search.plan import Plan
from tuneparts.search.segment import Segment
from tuneparts.search.spec import Search
from tuneparts.search.state import RunState
from tuneparts.search.stopping import Stop, _busy_seconds

SCORES = [0.2, 0.5, 0.4, 0.1, 0.3, 0.9, 0.6, 0.7, 0.95, 0.8]


def row(segment: Segment) -> dict[str, float]:
    score = SCORES[segment.trial.index % len(SCORES)]
    return {"val/accuracy": score, "hyper/rotation": 0.5, "cost/seconds": 900.0}


def finished(journal: Journal, *arms: str) -> list[int]:
    return [
        trial.index
        for trial, record in sorted(journal.trials.items())
        if record.end and record.end.outcome == "finished" and (not arms or trial.arm in arms)
    ]


def outcomes(path: Path) -> dict[str, list[str]]:
    return frames.trials(path).groupby("arm")["outcome"].agg(list).to_dict()


@pytest.mark.parametrize("target", [0.5, 0.9, 0.93, 2.0])
@pytest.mark.parametrize(
    "algorithm", [RandomSearch(num_trials=10), Tpe(num_trials=10, window=3, num_startup=2)]
)
def test_a_replicate_stops_at_the_first_trial_at_the_target_in_any_order(
    null_search, null_arm, tmp_path, target, algorithm
) -> None:
    search = null_search(null_arm("arm", algorithm=algorithm), stop=Stop(target=target))
    last = next((i for i, score in enumerate(SCORES) if score >= target), None)
    for order, width in [(0, 1), (1, 3), (2, 8)]:
        path = tmp_path / f"{order}.jsonl"
        journal = play(search, path, row, order=order, width=width)
        assert finished(journal) == list(range(10 if last is None else last + 1))
        if last is not None:
            found = journal.stops["arm", 0]
            assert found.message == f"trial {last} has reached val/accuracy {target}"
            assert (found.trial, found.is_all) == (TrialId("arm", 0, last + 1), False)
        before = path.read_bytes()
        play(search, path, row, width=3)
        assert path.read_bytes() == before  # a resumed search has nothing to do


def test_a_crash_after_any_event_does_not_move_a_stop(null_search, null_arm, tmp_path) -> None:
    arms = [
        null_arm("random", algorithm=RandomSearch(num_trials=10)),
        null_arm("after", hypers_from="random"),
    ]
    search = null_search(*arms, stop=Stop(target=0.9))
    play(search, tmp_path / "whole.jsonl", row, width=3)
    lines = (tmp_path / "whole.jsonl").read_text().splitlines(keepends=True)
    for count in range(len(lines)):
        path = tmp_path / "torn.jsonl"
        path.write_text("".join(lines[:count]))
        journal = play(search, path, row, order=count, width=3)
        assert finished(journal, "random") == [0, 1, 2, 3, 4, 5]
        assert finished(journal, "after") == [0]


def test_a_whole_search_stops_also_if_a_crash_comes_in_between(
    null_search, null_arm, tmp_path
) -> None:
    search = null_search(
        null_arm("random", algorithm=RandomSearch(num_trials=3)),
        null_arm("after", hypers_from="random"),
        null_arm("other", algorithm=RandomSearch(num_trials=9)),
    )
    path = tmp_path / "whole.jsonl"
    play(search, path, row, width=2, stop_after=6)
    expected = outcomes(path)
    assert [set(expected[arm]) for arm in ("random", "after", "other")] == [
        {"finished"}, {"not started"}, {"finished", "stopped", "not started"},
    ]  # fmt: skip
    lines = path.read_text().splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if '"kind": "stop"' in line)
    for count in range(first + 1, len(lines) + 1):
        torn = tmp_path / "torn.jsonl"
        torn.write_text("".join(lines[:count]))
        journal = play(search, torn, row, width=3)
        assert outcomes(torn) == expected
        assert {(stop.message, stop.is_all) for stop in journal.stops.values()} == {
            ("asked for by me", True)
        }


def test_hours_are_those_of_the_clock_while_it_runs() -> None:
    a, b = TrialId("a", 0, 0), TrialId("a", 0, 1)
    rows = [
        Row(a, 1, {"cost/seconds": 10.0}, 110.0),  # 100 to 110
        Row(b, 1, {"cost/seconds": 10.0}, 115.0),  # 105 to 115, side by side
        Row(a, 2, {"cost/seconds": 14.0}, 1000.0),  # 996 to 1000, by the next driver
    ]
    state = RunState()
    assert all(map(state.apply, rows))
    assert _busy_seconds(state.trials.values()) == 19.0


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("hours", [0.1 / 3600, None])
def test_running_trials_are_given_up(null_search, null_arm, tmp_path, workers, hours) -> None:
    """At a limit or on request; in this process, and in a pool whose workers are ended."""
    arm = null_arm("slow", algorithm=RandomSearch(num_trials=50), config={"seconds": 0.05})
    search, path = null_search(arm, stop=hours and Stop(hours=hours)), tmp_path / "journal.jsonl"

    def ask() -> None:
        while not path.exists() or "finished" not in outcomes(path).get("slow", []):
            time.sleep(0.05)
        stopping.request(tmp_path, "asked for by me")

    thread = threading.Thread(target=ask)
    if hours is None:
        thread.start()
    ending = executors.execute(search, folder=tmp_path, place=Place("local", workers=workers))
    assert ending == "done"
    assert Journal(path).stops["slow", 0].is_all
    found = set(outcomes(path)["slow"])
    assert "not started" in found
    assert found <= {"finished", "stopped", "not started"}
    if hours is None:
        thread.join()
        assert stopping._requested(tmp_path) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"asked for by me\n", "asked for by me"),
        (b'{"message": 5}', '{"message": 5}'),
        (b"", "asked for"),
        (b"\xff" * 9999, "\N{REPLACEMENT CHARACTER}" * 200),
    ],
)
def test_whatever_a_request_holds_the_run_stays_readable(
    null_search, null_arm, tmp_path, content: bytes, message: str
) -> None:
    search = null_search(null_arm("a", algorithm=RandomSearch(num_trials=2)))
    (tmp_path / "stop.txt").write_bytes(content)
    assert Plan(search, Journal(tmp_path / "journal.jsonl"), folder=tmp_path).done
    assert Journal(tmp_path / "journal.jsonl").stops["a", 0].message == message
    assert not (tmp_path / "stop.txt").exists()
    (tmp_path / "stop.txt").symlink_to(tmp_path / "journal.jsonl")  # no plain file, no request
    assert stopping._requested(tmp_path) is None
    (tmp_path / "stop.txt").unlink()
    os.mkfifo(tmp_path / "stop.txt")
    assert stopping._requested(tmp_path) is None


def test_a_run_that_nothing_drives_is_stopped_for_good(
    null_search, null_arm, results, capsys
) -> None:
    search = null_search(null_arm("random", algorithm=RandomSearch(num_trials=3)))
    made = runs.create(results, search, command="", commit="", versions={}, storage=None)
    verb.stop("null")
    assert f"{made.name} is stopped; no driver" in capsys.readouterr().out
    assert _stop_notes(RunCard.of(made))[0].startswith("The search was stopped: asked for by ")
    verb.stop("null")
    assert "has nothing left to stop" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"run was stopped \(asked for by .*Start a new run"):
        grow(made, Place("local"), seeds=[7])


def test_the_report_says_what_stopped_and_what_never_started(
    null_search, null_arm, tmp_path
) -> None:
    search = null_search(
        null_arm("random", algorithm=RandomSearch(num_trials=10)),
        null_arm("tpe", algorithm=Tpe(num_trials=10, window=2, num_startup=2)),
        stop=Stop(target=0.5),
        seeds=(0, 1),
    )
    facts = {"command": "", "commit": "", "versions": {}, "storage": None}
    made = runs.create(tmp_path, search, **facts)
    play(search, made.folder / "journal.jsonl", row)
    told = RunCard.of(made)
    assert _stop_notes(told) == [
        "random was stopped under seeds 0, 1: trial 1 has reached val/accuracy 0.5.",
        "tpe was stopped under seeds 0, 1: trial 1 has reached val/accuracy 0.5.",
    ]
    trials = frames.trials(made.folder / "journal.jsonl")
    rows = _summarise(trials, told).set_index("arm")
    assert rows["not_started"].to_dict() == {"random": 16, "tpe": 16}
    assert rows["finished"].to_dict() == {"random": 4, "tpe": 4}
    assert rows[["failed", "missing", "unfinished", "stopped"]].to_numpy().sum() == 0
    assert _select(trials, told)["index"].tolist() == [1, 1, 1, 1]
    assert type(told).from_json(told.to_json()) == told


def test_limits_belong_to_the_digest(null_search, null_arm) -> None:
    plain = null_search(null_arm("a", algorithm=RandomSearch(num_trials=2)))
    limited = plain.replaced({"stop": {"hours": 2.0}})
    assert plain.digest != limited.digest
    assert Search.model_validate(limited.model_dump(mode="json")) == limited
    with pytest.raises(ConfigError, match=r"`stop\.hours` = -1: should be greater than 0"):
        plain.replaced({"stop": {"hours": -1}})


def test_a_target_needs_trials_that_do_not_depend_on_later_ones(null_search, null_arm) -> None:
    halving = null_arm("halving", algorithm=SuccessiveHalving(num_trials=4, min_steps=2))
    with pytest.raises(ValueError, match=r"`stop.target` = 0.9: .* those of `halving`"):
        null_search(halving, stop=Stop(target=0.9))
    assert null_search(halving, stop=Stop(hours=1)).stop == Stop(hours=1)


def test_segments_of_a_stopped_replicate_are_ignored(null_search, null_arm, tmp_path) -> None:
    arm = null_arm("a", algorithm=RandomSearch(num_trials=4))
    plan = Plan(null_search(arm, stop=Stop(target=0.1)), Journal(tmp_path / "journal.jsonl"))
    first, second = plan.next(), plan.next()
    scored = {"val/accuracy": 0.5, "cost/steps": 8.0}
    plan.started(first)
    plan.started(second)
    plan.report(first, [scored])
    plan.complete(first, finished=True)
    assert plan.done
    assert plan.is_over(second)
    assert plan.next() is None
    plan.report(second, [scored])
    plan.complete(second, finished=True)
    assert not plan.lost(second)
    record = plan.journal.trials[second.trial]
    assert (record.end.outcome, record.rows) == ("stopped", {})
