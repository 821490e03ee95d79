"""The plan against an obvious executor: same answers in any order, and after any crash."""

import random
from pathlib import Path
from typing import Any

import pytest

from tests.search.playing import facts, play
from tuneparts.data.task import Task
from tuneparts.executors.setting import TrialSetting
from tuneparts.executors.worker import Report, _SegmentExecution
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.algorithms.halving import Asha, Hyperband, SuccessiveHalving
from tuneparts.search.algorithms.pbt import Pbt
from tuneparts.search.algorithms.sampler import Pruned, Tpe
from tuneparts.search.events import TrialEnded, TrialId, read
from tuneparts.search.journal import Journal, records
from tuneparts.search.plan import Plan
from tuneparts.search.segment import Segment
from tuneparts.search.spec import Search


class KilledError(Exception):
    pass


class Executor:
    """Runs segments in this process in a scrambled order, and may die on the way."""

    def __init__(self, order: int, storage: Path, die_after: int | None = None) -> None:
        self.rng = random.Random(order)
        task: Any = Task  # null learners do not look at it
        self.setting = TrialSetting(task, str(storage), False, interval_limit=60.0)
        self.die_after = die_after
        self.num_reports = 0

    def run(self, plan: Plan) -> None:
        running: list[Segment] = []
        while not plan.done:
            while (segment := plan.next()) is not None:
                running.append(segment)
            assert running, "the plan waits for nothing"
            self.run_segment(plan, running.pop(self.rng.randrange(len(running))))

    def run_segment(self, plan: Plan, segment: Segment) -> None:
        execution, report = _SegmentExecution(segment, self.setting), Report()
        while not report.done:
            report = execution.step()
            self.num_reports += 1
            is_last = self.num_reports == self.die_after
            if is_last and self.num_reports % 2:
                raise KilledError  # the state is kept, and the driver does not know
            plan.report(segment, report.rows)
            if is_last:
                raise KilledError  # the driver knows the row, and not that the segment ended
        plan.complete(segment, finished=report.finished, failure=report.failure)


def execute(
    search: Search, path: Path, *, order: int, die_after: int | None = None
) -> dict[str, Any]:
    journal = Journal(path)
    try:
        Executor(order, path.with_suffix(".trials"), die_after).run(Plan(search, journal))
    finally:
        journal.close()
    return facts(journal)


@pytest.fixture
def everything(null_search, null_arm) -> Search:
    """One arm of each kind, one that fails, and followers of followers."""
    return null_search(
        null_arm("fixed"),
        null_arm("broken", config={"fault": "raise"}),
        null_arm("random", algorithm=RandomSearch(num_trials=5)),
        null_arm("tpe", algorithm=Tpe(num_trials=7, window=3, num_startup=3)),
        null_arm("asha", algorithm=Asha(num_trials=9, min_steps=2, reduction=2)),
        null_arm("halving", algorithm=SuccessiveHalving(num_trials=6, min_steps=2, reduction=2)),
        null_arm("hyperband", algorithm=Hyperband(num_trials=6, min_steps=2, reduction=2)),
        null_arm(
            "pruned", algorithm=Pruned(num_trials=7, every=2, options={"n_startup_trials": 2})
        ),
        null_arm("pbt", algorithm=Pbt(population=4, num_rounds=4)),
        null_arm("again", hypers_from="random"),
        null_arm("after_broken", hypers_from="broken"),
        seeds=(0, 1),
    )


def test_the_answer_does_not_depend_on_who_was_faster(everything, tmp_path) -> None:
    answers = [execute(everything, tmp_path / f"{i}.jsonl", order=i) for i in range(4)]
    assert all(answer == answers[0] for answer in answers)


def test_every_trial_ends_once_with_its_true_outcome(everything, tmp_path) -> None:
    path = tmp_path / "journal.jsonl"
    execute(everything, path, order=0)
    ends = [event for event in read(path) if isinstance(event, TrialEnded)]
    assert len(ends) == len(records(path)) == 2 * (1 + 1 + 5 + 7 + 9 + 6 + 6 + 7 + 4 + 1 + 1)
    outcomes = {str(e.trial): e.outcome for e in ends}
    assert outcomes["broken/seed0/00000"] == "failed"
    assert outcomes["after_broken/seed0/00000"] == "failed"
    assert {o for t, o in outcomes.items() if t.startswith("asha")} == {"stopped", "finished"}
    assert all(o == "finished" for t, o in outcomes.items() if t.startswith(("tpe", "pbt")))
    steps = [sorted(r.rows) for trial, r in records(path).items() if trial.arm == "pbt"]
    assert steps == [[2, 4, 6, 8]] * 8  # a copy takes over weights
    journal = Journal(path)
    plan = Plan(everything, journal)
    assert plan.done
    assert plan.next() is None
    journal.close()


def test_a_driver_that_dies_and_resumes_gives_the_same_answer(everything, tmp_path) -> None:
    undisturbed = execute(everything, tmp_path / "whole.jsonl", order=0)
    for die_after in (1, 2, 3, 10, 25, 50, 80, 120):
        path = tmp_path / f"{die_after}.jsonl"
        with pytest.raises(KilledError):
            execute(everything, path, order=1, die_after=die_after)
        with path.open("a") as file:
            file.write('{"kind": "row", "trial": "rand')  # the line it was writing
        assert execute(everything, path, order=2) == undisturbed


@pytest.mark.parametrize("left", [0, 3, 9])
def test_a_power_cut_that_takes_rounds_of_the_journal_kills_no_member(
    null_search, null_arm, tmp_path, left: int
) -> None:
    """Checkpoints on another disk are then further than the journal."""
    search = null_search(
        null_arm("pbt", algorithm=Pbt(population=4, num_rounds=4)),
        null_arm("asha", algorithm=Asha(num_trials=8, min_steps=2, reduction=2)),
    )
    undisturbed = execute(search, tmp_path / "whole.jsonl", order=0)
    path = tmp_path / "cut.jsonl"
    with pytest.raises(KilledError):
        execute(search, path, order=1, die_after=27)
    assert len({row.step for r in records(path).values() for row in r.rows.values()}) >= 3
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:left]))
    assert execute(search, path, order=2) == undisturbed


class Losing(Executor):
    """Loses a worker after every row, and once more before it trains on."""

    def run_segment(self, plan: Plan, segment: Segment) -> None:
        report = _SegmentExecution(segment, self.setting).step()
        plan.report(segment, report.rows)
        if report.done:
            plan.complete(segment, finished=report.finished, failure=report.failure)
        else:
            assert plan.lost(segment)
            assert plan.lost(plan.next())


def test_a_trial_that_gets_on_may_lose_workers_without_end(null_search, null_arm, tmp_path) -> None:
    search = null_search(null_arm("fixed"), max_failures=2)
    journal = Journal(tmp_path / "journal.jsonl")
    Losing(0, tmp_path / "trials").run(Plan(search, journal))
    journal.close()
    (record,) = journal.trials.values()
    assert record.end.outcome == "finished"
    assert sorted(record.rows) == [2, 4, 6, 8]


def test_failures_are_counted_since_the_last_row_by_the_limit_of_the_arm(
    null_search, null_arm, tmp_path
) -> None:
    search = null_search(null_arm("a", max_failures=1), null_arm("b"), max_failures=0)
    plan = Plan(search, Journal(tmp_path / "journal.jsonl"))
    a, b = plan.next(), plan.next()
    assert plan.lost(a)
    assert plan.next() == a
    plan.report(a, [{"cost/steps": 2, "val/accuracy": 0.5}])
    assert plan.lost(plan.next() or a)
    plan.report(a, [{"cost/steps": 2, "val/accuracy": 0.5}])  # known: no progress
    assert not plan.lost(a)
    assert not plan.lost(b, "the storage failed", ": away")
    ends = {str(trial): record.end.message for trial, record in plan.journal.trials.items()}
    assert "the worker process died 2 times since its last row; what" in ends["a/seed0/00000"]
    assert ends["b/seed0/00000"] == "the storage failed 1 times: away"
    assert plan.done
    plan.journal.close()


def run_with(search: Search, path: Path, metrics: dict[str, float]) -> dict[str, Any]:
    """Every segment ends with these metrics."""
    return facts(play(search, path, lambda _: metrics))


@pytest.mark.parametrize(
    ("algorithm", "count"),
    [
        (RandomSearch(num_trials=3), 3),
        (Tpe(num_trials=3, window=2, num_startup=1), 3),
        (Asha(num_trials=4, min_steps=2, reduction=2), 4),
        (Pbt(population=4, num_rounds=2), 4),
    ],
)
def test_a_missing_metric_fails_trials_that_are_compared_with_a_sentence(
    null_search, null_arm, tmp_path, algorithm, count: int
) -> None:
    search = null_search(null_arm("arm", algorithm=algorithm))
    found = run_with(search, tmp_path / "j.jsonl", {"train/loss": 1.0})
    assert len(found) == count
    for _, _, (outcome, message) in found.values():
        assert outcome == "failed"
        assert "trials of `arm` are compared by val/accuracy, but its row after" in message
        assert "has only cost/seconds, cost/steps, train/loss. Hold out" in message


def test_a_single_trial_needs_no_score_but_a_broken_one_is_a_failure(
    null_search, null_arm, tmp_path
) -> None:
    search = null_search(null_arm("arm"))
    found = run_with(search, tmp_path / "none.jsonl", {"train/loss": 1.0})
    assert [end[0] for _, _, end in found.values()] == ["finished"]
    found = run_with(search, tmp_path / "inf.jsonl", {"val/accuracy": float("inf")})
    assert [end for _, _, end in found.values()] == [
        ("failed", "a score is a finite number, but val/accuracy is inf.")
    ]


def test_a_member_that_raises_goes_on_as_a_copy_of_a_good_one(
    null_search, null_arm, tmp_path
) -> None:
    search = null_search(null_arm("pbt", algorithm=Pbt(population=4, num_rounds=4)))

    def run_until(path: Path, most: int | None = None) -> dict[str, Any]:
        journal = play(
            search,
            path,
            lambda segment: {"val/accuracy": segment.config["x"]},
            fails=lambda segment: (segment.trial.index, segment.round) == (1, 1),
            most=most,
        )
        return facts(journal)

    whole = run_until(tmp_path / "whole.jsonl")
    assert {end[0] for _, _, end in whole.values()} == {"finished"}
    record = records(tmp_path / "whole.jsonl")[TrialId("pbt", 0, 1)]
    assert record.failed_rounds == {2: "ValueError: odd"}
    assert sorted(record.rows) == [2, 6, 8]
    donor = TrialId.parse(record.starts[4].donor)
    scores = {i: records(tmp_path / "whole.jsonl")[TrialId("pbt", 0, i)] for i in (0, 2, 3)}
    best = max(scores, key=lambda i: scores[i].rows[4].metrics["val/accuracy"])
    assert donor.index == best
    for most in (5, 6, 7, 10):
        run_until(tmp_path / f"{most}.jsonl", most)
        assert run_until(tmp_path / f"{most}.jsonl") == whole


def test_a_follower_trains_at_the_hypers_of_the_best_by_validation(everything, tmp_path) -> None:
    path = tmp_path / "journal.jsonl"
    execute(everything, path, order=0)
    trials = records(path)
    for seed in (0, 1):
        scores = {
            i: trials[TrialId("random", seed, i)].last.metrics["val/accuracy"] for i in range(5)
        }
        best = trials[TrialId("random", seed, max(scores, key=scores.__getitem__))]
        follower = trials[TrialId("again", seed, 0)]
        assert follower.config["hypers"]["affine"]["rotation"] == pytest.approx(best.config["x"])


def test_seconds_of_a_trial_are_those_of_all_its_rounds(null_search, null_arm, tmp_path) -> None:
    population = null_search(null_arm("pbt", algorithm=Pbt(population=4, num_rounds=4)))
    plan = Plan(population, Journal(tmp_path / "journal.jsonl"))
    while (segment := plan.next()) is not None:
        row = {"val/accuracy": 0.5, "cost/steps": float(segment.until), "cost/seconds": 1.5}
        plan.report(segment, [row])  # a worker counts from the start of its round
        plan.complete(segment, finished=segment.until == 8)
    plan.journal.close()
    for record in plan.journal.trials.values():
        seconds = [record.rows[step].metrics["cost/seconds"] for step in (2, 4, 6, 8)]
        assert seconds == [1.5, 3.0, 4.5, 6.0]


def test_trials_without_a_finite_score_have_failed_and_are_resumed_alike(
    null_search, null_arm, tmp_path
) -> None:
    """Neither takes the others along, nor is it left running for ever.

    A member of a population goes on as a copy of another, and fails for good in its last round.
    """
    search = null_search(
        null_arm("asha", algorithm=Asha(num_trials=9, min_steps=2, reduction=2)),
        null_arm("pbt", algorithm=Pbt(population=4, num_rounds=4)),
    )

    def score(segment: Segment) -> dict[str, float]:
        return {"val/accuracy": segment.config["x"] if segment.trial.index else float("nan")}

    def run_until(path: Path, most: int | None = None) -> dict[str, Any]:
        return facts(play(search, path, score, most=most))

    whole = run_until(tmp_path / "whole.jsonl")
    for most in (3, 9, 14):
        run_until(tmp_path / f"{most}.jsonl", most)
        again = run_until(tmp_path / f"{most}.jsonl")
        assert again.keys() == whole.keys()
        assert all(again[trial][0::2] == whole[trial][0::2] for trial in whole)
    outcomes = {trial: end[0] for trial, (_, _, end) in whole.items()}
    assert outcomes["asha/seed0/00000"] == "failed"
    assert "finished" in {outcomes[f"asha/seed0/0000{i}"] for i in range(1, 9)}
    assert outcomes["pbt/seed0/00000"] == "failed"
    assert {outcomes[f"pbt/seed0/0000{i}"] for i in range(1, 4)} == {"finished"}
    message = "a score is a finite number, but val/accuracy is nan."
    record = records(tmp_path / "whole.jsonl")[TrialId("pbt", 0, 0)]
    assert record.failed_rounds == {0: message, 2: message, 4: message}
    assert whole["pbt/seed0/00000"][2][1] == message
    assert all(start.donor is not None for step, start in record.starts.items() if step)
