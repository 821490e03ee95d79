"""Stopping a run, an arm or a trial from another process."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tuneparts import executors, frames
from tuneparts.cli import stop as verb
from tuneparts.errors import ConfigError, UnknownNameError
from tuneparts.journal import Journal, TrialId
from tuneparts.search import requests, runs
from tuneparts.search.plan import Plan
from tuneparts.search.requests import FOLDER, Inbox, StopRequest
from tuneparts.search.spec import Asha, Pbt, RandomSearch, Search, Tpe


def step(plan: Plan, count: int) -> None:
    """Run so many segments."""
    for _ in range(count):
        segment = plan.next()
        plan.started(segment)
        row = {"val/accuracy": segment.config["x"], "hyper/rotation": 0.5}
        plan.report(segment, [row | {"cost/passes": segment.until}])
        plan.complete(segment, finished=segment.until == 8)


def outcomes(path: Path) -> dict[str, list[str]]:
    return frames.trials(path).groupby("arm")["outcome"].agg(list).to_dict()


@pytest.fixture
def search(null_search, null_arm) -> Search:
    return null_search(
        null_arm("random", algorithm=RandomSearch(num_trials=3)),
        null_arm("after", follows="random"),
        null_arm("other", algorithm=RandomSearch(num_trials=2)),
    )


def test_an_arm_is_stopped_and_the_others_go_on(search, tmp_path) -> None:
    path = tmp_path / "journal.jsonl"
    plan = Plan(search, Journal(path), inbox=Inbox(tmp_path))
    step(plan, 1)
    requests.ask(tmp_path, StopRequest("asked for by me", arm="random"))
    plan._inbox._looked = 0.0
    plan.look()
    assert not list((tmp_path / FOLDER).iterdir())
    step(plan, 3)
    assert plan.done
    assert outcomes(path) == {
        "random": ["finished", "not started", "not started"],
        "after": ["finished"],
        "other": ["finished", "finished"],
    }
    assert plan.journal.stops["random", 0].message == "asked for by me"
    assert Plan(search, Journal(path)).done


def test_all_of_it_is_stopped(search, tmp_path) -> None:
    path = tmp_path / "journal.jsonl"
    plan = Plan(search, Journal(path))
    step(plan, 1)
    running = plan.next()
    plan.started(running)
    plan.stop(StopRequest("asked for by me"))
    assert plan.done
    assert plan.is_over(running)
    assert outcomes(path)["random"] == ["finished", "stopped", "not started"]
    assert set(outcomes(path)["other"]) == {"not started"}
    assert Plan(search, Journal(path)).done


@pytest.mark.parametrize(
    "algorithm",
    [
        RandomSearch(num_trials=4),
        Tpe(num_trials=4, window=2, num_startup=1),
        Asha(num_trials=4, min_passes=4, reduction=2),
    ],
)
def test_a_trial_is_stopped_in_the_middle_and_stays_so(
    null_search, null_arm, tmp_path, algorithm
) -> None:
    search = null_search(null_arm("arm", algorithm=algorithm))
    path, first = tmp_path / "journal.jsonl", TrialId("arm", 0, 0)
    plan = Plan(search, Journal(path))
    segment = plan.next()
    plan.started(segment)
    plan.report(segment, [{"val/accuracy": 0.5, "cost/passes": 2.0}])
    plan.stop(StopRequest("asked for by me", "arm", str(first)))
    assert plan.is_over(segment)
    plan.complete(segment, finished=False)
    again = Plan(search, Journal(path))  # after a crash
    while (segment := again.next()) is not None:
        again.give_back(segment)
        assert segment.trial != first
        step(again, 1)
    assert again.done
    assert outcomes(path)["arm"][0] == "stopped"
    assert "finished" in outcomes(path)["arm"]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_running_search_hears_it(null_search, null_arm, tmp_path, workers: int) -> None:
    arm = null_arm("slow", algorithm=RandomSearch(num_trials=50), config={"seconds": 0.05})
    search = null_search(arm)

    def ask() -> None:
        while not (tmp_path / "journal.jsonl").exists() or not outcomes(
            tmp_path / "journal.jsonl"
        ).get("slow", []).count("finished"):
            time.sleep(0.05)
        requests.ask(tmp_path, StopRequest("asked for by me"))

    thread = threading.Thread(target=ask)
    thread.start()
    ending = executors.execute(search, folder=tmp_path, executor="local", workers=workers)
    thread.join()
    assert ending.status == "done"
    assert "not started" in outcomes(tmp_path / "journal.jsonl")["slow"]


def test_what_no_driver_runs_is_stopped_in_its_place(search, results, capsys) -> None:
    made = runs.create(results, search, command="", commit="", versions={}, storage=None)
    verb.stop("null", arm="random", trial=None)
    assert f"arm random of {made.name} is stopped; no driver" in capsys.readouterr().out
    assert set(Journal(made.folder / "journal.jsonl").stops) == {("random", 0)}
    verb.stop("null", arm="random", trial=None)
    assert "has nothing left to stop" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"arm": "rando"}, UnknownNameError, "Did you mean `random`"),
        ({"trial": "random"}, ConfigError, "a trial reads `ARM/seed0/00000`"),
        ({"arm": "after", "trial": "random/seed0/00000"}, ConfigError, "not a trial of `after`"),
        ({"trial": "pbt/seed0/00000"}, ConfigError, "Use `--arm pbt`"),
    ],
)
def test_what_cannot_be_stopped_is_refused(
    null_search, null_arm, results, asked: dict[str, Any], error, words: str
) -> None:
    search = null_search(
        null_arm("random", algorithm=RandomSearch(num_trials=3)),
        null_arm("after", follows="random"),
        null_arm("pbt", algorithm=Pbt(population=4, num_rounds=2)),
    )
    runs.create(results, search, command="", commit="", versions={}, storage=None)
    with pytest.raises(error, match=words):
        verb.stop("null", **{"arm": None, "trial": None, **asked})
