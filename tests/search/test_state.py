"""The fold of a journal, against a slow and obvious one that looks at all events of a trial."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tuneparts.search.events import (
    Event,
    ReplicateStopped,
    ResultTold,
    Row,
    TrialEnded,
    TrialId,
    TrialRetried,
    TrialRunning,
    TrialStarted,
    TrialVoided,
    _RoundFailed,
    read,
)
from tuneparts.search.state import RunState, TrialRecord

RECORDED = sorted((Path(__file__).parents[1] / "recorded" / "runs").glob("*/*/journal.jsonl"))
TRIALS = [TrialId(arm, seed, index) for arm in "ab" for seed in (0, 1) for index in range(2)]
A = TRIALS[0]


def some_events(seed: int) -> list[Event]:
    """A journal with every kind of event in any order that a search could write, and duplicates."""
    rng, steps = random.Random(seed), Counter[TrialId]()
    events: list[Event] = [TrialStarted(trial, {"lr": 0.1}, 0.0) for trial in TRIALS]
    for time in range(1, 200):
        trial = rng.choice(TRIALS)
        steps[trial] += rng.choice([0, 5])
        config, donor = {"lr": rng.choice([0.1, 0.2])}, rng.choice([None, str(rng.choice(TRIALS))])
        metrics = {rng.choice(["val/nll", "test/nll"]): rng.random()}
        rare = [
            TrialVoided(trial, time, "void"),
            ReplicateStopped(trial, time, "stop"),
            TrialEnded(trial, rng.choice(["finished", "stopped"]), time),
        ]
        events += [
            rng.choice(
                [
                    TrialStarted(trial, config, time, steps[trial], donor),
                    TrialRunning(trial, time),
                    *[Row(trial, steps[trial], metrics, time)] * 3,
                    TrialEnded(trial, "failed", time),
                    _RoundFailed(trial, steps[trial], "boom", time),
                    TrialRetried(trial, time),
                    ResultTold(trial, steps[trial], time),
                    *([rng.choice(rare)] if rng.random() < 0.2 else ()),
                ]
            )
        ]
    return events


def facts(record: TrialRecord) -> dict[str, Any]:
    names = ("start", "queued", "rows", "last", "latest", "failed_rounds", "told", "end", "configs")
    return {name: getattr(record, name) for name in names}


def slow_facts(own: list[Event]) -> dict[str, Any]:
    """The same from all events of a trial that were news, oldest first."""
    rows = {event.step: event for event in own if isinstance(event, Row)}
    starts = {event.steps: event for event in own if isinstance(event, TrialStarted)}
    latest = {name: value for step in sorted(rows) for name, value in rows[step].metrics.items()}
    end, failed = None, {}
    for number, event in enumerate(own):
        if isinstance(event, TrialEnded):
            end = event
        elif isinstance(event, TrialVoided):
            end = TrialEnded(event.trial, "stopped", event.time, event.message)
        elif isinstance(event, _RoundFailed):
            failed[event.steps] = event.message
        elif isinstance(event, TrialRetried):
            end, newest = None, max(failed, default=-1)
            before = [one.steps for one in own[:number] if isinstance(one, TrialStarted)]
            if newest >= max(before, default=0):
                failed.pop(newest, None)
    queued = next((event.time for event in own if isinstance(event, TrialStarted)), None)
    running = next((event.time for event in own if isinstance(event, TrialRunning)), None)
    return {
        "start": queued if running is None and (rows or end) else running,
        "queued": queued,
        "rows": rows,
        "last": rows[max(rows)] if rows else None,
        "latest": latest,
        "failed_rounds": failed,
        "told": {event.steps for event in own if isinstance(event, ResultTold)},
        "end": end,
        "configs": [starts[steps].config for steps in sorted(starts)],
    }


def check(events: list[Event]) -> None:
    state, newest = RunState(), RunState(keep_rows=False)
    news = [event for event in events if state.apply(event)]
    for event in news:
        newest.apply(event)
    stops = [event for event in news if isinstance(event, ReplicateStopped)]
    assert list(state.stops.values()) == stops
    for trial, record in state.trials.items():
        own = [e for e in news if e.trial == trial and not isinstance(e, ReplicateStopped)]
        assert facts(record) == slow_facts(own)
        light = newest.trials[trial]
        assert (light.latest, light.last, light.status) == (
            record.latest,
            record.last,
            record.status,
        )
    told = [event for event in news if isinstance(event, ResultTold)]
    for key in {(trial.arm, trial.seed) for trial in state.trials}:
        own_trials = state.replicate(*key)
        assert +state.counts[key] == Counter(record.status for record in own_trials.values())
        assert state.told.get(key, []) == [e for e in told if e.trial in own_trials]


@pytest.mark.parametrize("seed", range(30))
def test_any_journal(seed: int) -> None:
    check(some_events(seed))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parts[-3])
def test_recorded_journals_hold_news_only(path: Path) -> None:
    events = list(read(path))
    assert all(map(RunState().apply, events))
    check(events)


def test_a_run_that_has_just_begun_has_no_trials(tmp_path: Path) -> None:
    assert not RunState.read(tmp_path / "journal.jsonl").trials


def applied(*events: Event) -> tuple[list[bool], TrialRecord]:
    state = RunState()
    return [state.apply(event) for event in events], state.trials[A]


def start(steps: int, lr: float, donor: str | None = None) -> TrialStarted:
    return TrialStarted(A, {"lr": lr}, 1.0, steps, donor)


def test_the_same_twice_is_no_news() -> None:
    first = [start(0, 0.1), TrialRunning(A, 1.5), Row(A, 10, {"x": 1.0}, 2.0)]
    first += [TrialEnded(A, "failed", 4.0)]
    later = [Row(A, 10, {"x": 2.0}, 9.0), TrialEnded(A, "finished", 9.0), first[0], first[1]]
    assert applied(*first, *later)[0] == [True] * 4 + [False] * 4


def test_a_config_that_comes_back_is_the_newest_and_a_copy_is_news() -> None:
    given = [start(0, 0.1), start(10, 0.1), start(20, 0.2), start(30, 0.1), start(40, 0.1)]
    news, record = applied(*given, *given)  # the second time as after a crash
    assert news == [True, False, True, True, False, *[False] * 5]
    assert record.configs == [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.1}]
    assert record.config == {"lr": 0.1}
    copies = [start(0, 0.1), start(10, 0.1, "b/seed0/00004")]
    assert applied(*copies, *copies)[0] == [True, True, False, False]


def test_a_failed_trial_can_be_retried_and_no_other() -> None:
    again, fails = TrialRetried(A, 9.0), TrialEnded(A, "failed", 8.0)
    ends = TrialEnded(A, "finished", 10.0)
    news, record = applied(start(0, 0.1), again, fails, again, again, ends, again)
    assert news == [True, False, True, True, False, True, False]
    assert record.status == "finished"


def test_a_trial_waits_runs_and_ends() -> None:
    events = [
        start(0, 0.1),
        TrialRunning(A, 1.5),
        Row(A, 10, {}, 2.0),
        TrialEnded(A, "failed", 3.0),
        TrialRetried(A, 4.0),
        Row(A, 20, {}, 5.0),
        TrialEnded(A, "finished", 6.0),
        TrialVoided(A, 7.0, "another one is selected"),
    ]
    found = [applied(*events[: count + 1])[1] for count in range(len(events))]
    statuses = " ".join(record.status for record in found)
    assert statuses == "queued running running failed queued running finished stopped"
    assert [record.start for record in found] == [None, *[1.5] * 7]
    assert (found[-1].worked_until, found[-1].end.time) == (6.0, 7.0)
