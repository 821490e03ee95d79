"""Rules that stop a search or a replicate: at the same place in any order and after any crash."""

import random
import time
from pathlib import Path
from typing import Any

import pytest

from tuneparts import executors, frames
from tuneparts.api.describing import metadata
from tuneparts.errors import ConfigError
from tuneparts.journal import Journal, Row, TrialId
from tuneparts.reports.select import select, summarise
from tuneparts.reports.tables import stop_notes
from tuneparts.search import runs
from tuneparts.search.algorithms import SuccessiveHalving
from tuneparts.search.plan import Plan
from tuneparts.search.segment import Segment
from tuneparts.search.spec import RandomSearch, Search, Tpe
from tuneparts.search.stopping import Stop, StopRule, _busy_seconds

SCORES = [0.2, 0.5, 0.4, 0.1, 0.3, 0.9, 0.6, 0.7, 0.95, 0.8]


class ThirdBest(StopRule):
    """A rule of one's own."""

    def stops(self, scores: Any, metric: Any) -> bool:
        return metric.name == "val/accuracy" and len(scores) == 3


def play(
    search: Search, path: Path, *, order: int = 0, width: int = 3, die_after: int | None = None
) -> Journal:
    """Run what is left with so many workers, which are fast and slow at random."""
    rng, journal = random.Random(order), Journal(path)
    plan, running, count = Plan(search, journal), [], 0
    while count != die_after:
        while len(running) < width and (segment := plan.next()) is not None:
            plan.started(segment)
            running.append(segment)
        if not running:
            break
        segment = running.pop(rng.randrange(len(running)))
        count += 1
        if plan.is_over(segment):
            continue
        score = SCORES[segment.trial.index % len(SCORES)]
        row = {"val/accuracy": score, "hyper/rotation": 0.5, "cost/seconds": 900.0}
        plan.report(segment, [row | {"cost/passes": segment.until}])
        plan.complete(segment, finished=segment.until == 8)
    journal.close()
    assert plan.done or die_after is not None
    return journal


def finished(journal: Journal, *arms: str) -> list[int]:
    return [
        trial.index
        for trial, record in sorted(journal.trials.items())
        if record.end and record.end.outcome == "finished" and (not arms or trial.arm in arms)
    ]


@pytest.mark.parametrize(
    ("stop", "count", "words"),
    [
        (Stop(target=0.9), 6, "trial 5 has reached val/accuracy 0.9"),
        (Stop(patience=2), 4, "2 trials in a row were no better than those before"),
        (Stop(patience=3), 5, "3 trials in a row"),
        (Stop(passes=17), 3, "its trials have taken 17 passes"),
        (Stop(rule=ThirdBest()), 3, "says so after 3 trials"),
        (Stop(target=2.0), 10, None),
    ],
)
@pytest.mark.parametrize(
    "algorithm", [RandomSearch(num_trials=10), Tpe(num_trials=10, window=3, num_startup=2)]
)
def test_a_replicate_stops_at_the_same_trial_whoever_was_faster(
    null_search, null_arm, tmp_path, stop, count, words, algorithm
) -> None:
    search = null_search(null_arm("arm", algorithm=algorithm, stop=stop))
    found = []
    for order, width in [(0, 1), (1, 3), (2, 8)]:
        path = tmp_path / f"{order}.jsonl"
        journal = play(search, path, order=order, width=width)
        found.append(finished(journal))
        if words:
            assert words in journal.stops["arm", 0].message
            assert journal.stops["arm", 0].trial == TrialId("arm", 0, count)
        before = path.read_bytes()
        play(search, path)
        assert path.read_bytes() == before  # a resumed search has nothing to do
    assert found == [list(range(count))] * 3


@pytest.mark.parametrize("die_after", range(2, 8))
def test_a_crash_does_not_move_the_stop(null_search, null_arm, tmp_path, die_after: int) -> None:
    arms = [
        null_arm("random", algorithm=RandomSearch(num_trials=10), stop=Stop(patience=2)),
        null_arm("after", follows="random"),
    ]
    search = null_search(*arms)
    play(search, tmp_path / "journal.jsonl", die_after=die_after)
    journal = play(search, tmp_path / "journal.jsonl", order=die_after)
    assert finished(journal, "random") == [0, 1, 2, 3]
    assert journal.trials[TrialId("after", 0, 0)].end.outcome == "finished"


@pytest.mark.parametrize(
    ("stop", "words"),
    [
        (Stop(gpu_hours=0.6), "the search has taken 0.6 GPU hours"),
        (Stop(passes=30), "the search has taken 30 passes"),
    ],
)
def test_a_whole_search_stops(null_search, null_arm, tmp_path, stop, words) -> None:
    """900 s and 8 passes a trial, half a GPU each."""
    from tuneparts.search.spec import Resources

    half = Resources(gpus=0.5)
    search = null_search(
        null_arm("a", algorithm=RandomSearch(num_trials=3), resources=half),
        null_arm("b", algorithm=RandomSearch(num_trials=10), resources=half),
        null_arm("c", follows="b", resources=half),
        stop=stop,
    )
    journal = play(search, tmp_path / "journal.jsonl", width=1)
    count = len(finished(journal))
    assert count == (4 if stop.passes else 5)
    assert {stop.message for stop in journal.stops.values()} == {words}
    assert all(stop.is_all for stop in journal.stops.values())
    assert ("c", 0) in journal.stops
    assert len(finished(play(search, tmp_path / "journal.jsonl"))) == count
    # A crash in the middle of stopping: the first of the lines is there, the others are not.
    text = (tmp_path / "journal.jsonl").read_text()
    first = text.index('{"kind": "stop"')
    (tmp_path / "torn.jsonl").write_text(text[: text.index("\n", first) + 1])
    assert len(finished(play(search, tmp_path / "torn.jsonl"))) == count


def test_hours_are_those_of_the_clock_while_it_runs() -> None:
    a, b = TrialId("a", 0, 0), TrialId("a", 0, 1)
    rows = [
        Row(a, 1, {"cost/seconds": 10.0}, 110.0),  # 100 to 110
        Row(b, 1, {"cost/seconds": 10.0}, 115.0),  # 105 to 115, side by side
        Row(a, 2, {"cost/seconds": 14.0}, 1000.0),  # 996 to 1000, by the next driver
    ]
    assert _busy_seconds(rows) == 19.0


def test_a_running_trial_is_given_up_when_time_is_over(null_search, null_arm, tmp_path) -> None:
    """With the local executor: in this process, and in a pool whose worker is ended."""
    arm = null_arm("slow", algorithm=RandomSearch(num_trials=9), config={"seconds": 0.05})
    search = null_search(arm, stop=Stop(hours=0.1 / 3600))
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        begin = time.monotonic()
        ending = executors.execute(search, folder=folder, executor="local", workers=workers)
        assert ending.status == "done"
        journal = Journal(folder / "journal.jsonl")
        assert journal.stops["slow", 0].is_all
        outcomes = set(frames.trials(folder / "journal.jsonl")["outcome"])
        assert "not started" in outcomes
        assert outcomes <= {"finished", "stopped", "not started"}
        assert time.monotonic() - begin < 60


def test_the_report_says_what_stopped_and_what_never_started(
    null_search, null_arm, tmp_path
) -> None:
    search = null_search(
        null_arm("random", algorithm=RandomSearch(num_trials=10)),
        null_arm(
            "tpe", algorithm=Tpe(num_trials=10, window=2, num_startup=2), stop=Stop(target=0.5)
        ),
        stop=Stop(patience=2),
        seeds=(0, 1),
    )
    facts = {"command": "", "commit": "", "versions": {}, "storage": None}
    made = runs.create(tmp_path, search, **facts)
    play(search, made.folder / "journal.jsonl", width=1)
    told = metadata(made)
    assert stop_notes(told) == [
        "random was stopped under seeds 0, 1: 2 trials in a row were no better than those before.",
        "tpe was stopped under seeds 0, 1: trial 1 has reached val/accuracy 0.5.",
    ]
    trials = frames.trials(made.folder / "journal.jsonl")
    rows = summarise(trials, told).set_index("arm")
    assert rows["not_started"].to_dict() == {"random": 12, "tpe": 16}
    assert rows["finished"].to_dict() == {"random": 8, "tpe": 4}
    assert rows[["failed", "missing", "unfinished", "stopped"]].to_numpy().sum() == 0
    assert select(trials, told)["index"].tolist() == [1, 1, 1, 1]
    assert type(told).from_json(told.to_json()) == told


def test_rules_belong_to_the_digest_and_leave_others_alone(null_search, null_arm) -> None:
    plain = null_search(null_arm("a", algorithm=RandomSearch(num_trials=2)))
    assert "stop" not in plain.model_dump()
    assert "stop" not in plain.model_dump()["arms"][0]
    limited = plain.replaced({"stop": {"hours": 2.0}})
    own = plain.replaced({"stop": {"rule": ThirdBest()}})
    assert len({plain.digest, limited.digest, own.digest}) == 3
    assert Search.model_validate(own.model_dump(mode="json")) == own


def test_a_rule_for_trials_in_their_order_needs_such_trials(null_search, null_arm) -> None:
    halving = null_arm("halving", algorithm=SuccessiveHalving(num_trials=4, min_passes=2))
    with pytest.raises(
        ValueError, match=r"those of `halving` do. Give `halving` a `stop` of its own"
    ):
        null_search(halving, stop=Stop(patience=2))
    own = halving.model_copy(update={"stop": Stop()})
    assert null_search(own, stop=Stop(patience=2)).stop_of("halving") == Stop()
    with pytest.raises(ConfigError, match=r"`stop\.hours` is greater than 0, but got -1"):
        null_search(halving).replaced({"stop": {"hours": -1}})


def test_segments_of_a_stopped_replicate_are_ignored(null_search, null_arm, tmp_path) -> None:
    search = null_search(null_arm("a", algorithm=RandomSearch(num_trials=4), stop=Stop(target=0.1)))
    plan = Plan(search, Journal(tmp_path / "journal.jsonl"))
    first, second = plan.next(), plan.next()
    assert isinstance(second, Segment)
    row = {"val/accuracy": 0.5, "cost/passes": 8.0}
    plan.started(first)
    plan.started(second)
    plan.report(first, [row])
    plan.complete(first, finished=True)
    assert plan.done
    assert plan.is_over(second)
    assert plan.next() is None
    plan.report(second, [row])
    plan.complete(second, finished=True)
    assert not plan.lost(second)
    record = plan.journal.trials[second.trial]
    assert (record.end.outcome, record.rows) == ("stopped", {})
