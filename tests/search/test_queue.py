"""Which segment runs next: what others wait for first, within the limits of trials at once."""

import heapq
from pathlib import Path

import pytest
from pydantic import ValidationError

from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.algorithms.halving import Asha
from tuneparts.search.algorithms.pbt import Pbt
from tuneparts.search.algorithms.sampler import Tpe
from tuneparts.search.journal import Journal
from tuneparts.search.plan import Plan
from tuneparts.search.segment import Segment
from tuneparts.search.spec import Search


def a_plan(search: Search, folder: Path) -> Plan:
    return Plan(search, Journal(folder / "journal.jsonl"))


def taken(plan: Plan) -> list[str]:
    found = []
    while (segment := plan.next()) is not None:
        found.append(segment.trial.arm)
    return found


def end(plan: Plan, segment: Segment) -> None:
    row = {"val/accuracy": segment.config["x"], "cost/steps": float(segment.until)}
    plan.report(segment, [row])
    plan.complete(segment, finished=segment.until == 8)


def test_what_others_wait_for_goes_first_and_the_longest_chain_before_all(
    null_search, null_arm, tmp_path
) -> None:
    search = null_search(
        null_arm("random", algorithm=RandomSearch(num_trials=2)),
        null_arm("source", algorithm=RandomSearch(num_trials=2)),
        null_arm("asha", algorithm=Asha(num_trials=2, min_steps=2, reduction=2)),
        null_arm("tpe", algorithm=Tpe(num_trials=8, window=2)),
        null_arm("taking", hypers_from="source"),
        null_arm("last", hypers_from="taking"),
    )
    plan = a_plan(search, tmp_path)
    assert [one.arm for one in plan.queue.waiting()] == ["tpe", "source", "asha", "random"]
    assert [one.count for one in plan.queue.waiting()] == [2, 2, 2, 2]
    # Four batches of eight steps; eight and two that take from it; eight, and one trial.
    assert [-one.rank[1] for one in plan.queue.waiting()] == [32, 24, 8, 8]
    assert taken(plan) == ["tpe"] * 2 + ["source"] * 2 + ["asha"] * 2 + ["random"] * 2


def test_a_chain_gets_shorter_on_the_way(null_search, null_arm, tmp_path) -> None:
    plan = a_plan(null_search(null_arm("tpe", algorithm=Tpe(num_trials=4, window=2))), tmp_path)
    for expected in (16, 8):
        assert -plan.queue.waiting()[0].rank[1] == expected
        for segment in [plan.next(), plan.next()]:
            end(plan, segment)
    assert plan.done


def test_a_segment_whose_worker_was_lost_is_the_next(null_search, null_arm, tmp_path) -> None:
    plan = a_plan(null_search(null_arm("random", algorithm=RandomSearch(num_trials=3))), tmp_path)
    first = plan.next()
    assert first is not None
    plan.give_back(first)
    assert plan.next() == first


@pytest.mark.parametrize(("whole", "arm", "expected"), [(3, None, 3), (None, 2, 6), (3, 2, 3)])
def test_no_more_run_at_once_than_was_said(
    null_search, null_arm, tmp_path, whole, arm, expected: int
) -> None:
    random = RandomSearch(num_trials=4)
    arms = [null_arm("free", algorithm=random), null_arm("few", algorithm=random, at_once=arm)]
    plan = a_plan(null_search(*arms, at_once=whole), tmp_path)
    running: list[Segment] = []
    while not plan.done:
        while (segment := plan.next()) is not None:
            running.append(segment)
        assert len(running) <= expected
        assert arm is None or sum(one.trial.arm == "few" for one in running) <= arm
        end(plan, running.pop())
    assert len(plan.journal.trials) == 8


def test_limits_are_numbers_above_zero_and_change_no_digest(null_search, null_arm) -> None:
    with pytest.raises(ValidationError, match="greater than 0"):
        null_search(null_arm("fixed"), at_once=0)
    plain = null_search(null_arm("fixed"))
    limited = null_search(null_arm("fixed", at_once=2), at_once=3)
    assert plain.digest == limited.digest


def test_only_some_arms_are_taken_from(null_search, null_arm, tmp_path) -> None:
    plan = a_plan(null_search(null_arm("a"), null_arm("b")), tmp_path)
    assert plan.next(["b"]).trial.arm == "b"
    assert plan.next(["b"]) is None
    assert plan.next().trial.arm == "a"


class Mine(RandomSearch):
    is_adaptive = True


def test_an_algorithm_of_ones_own_that_adapts_counts_as_a_chain(null_arm) -> None:
    for algorithm, steps in ((RandomSearch(num_trials=5), 8), (Mine(num_trials=5), 40)):
        arm = null_arm("a", algorithm=algorithm)
        assert arm.cost.sequential == steps


def makespan(plan: Plan, slots: int) -> float:
    """Steps until all is done on so many workers."""
    clock = 0.0
    running: list[tuple[float, str, Segment]] = []
    while not plan.done:
        while len(running) < slots and (segment := plan.next()) is not None:
            over = clock + segment.until - segment.start
            heapq.heappush(running, (over, str(segment.trial), segment))
        clock, _, segment = heapq.heappop(running)
        end(plan, segment)
    return clock


def test_the_order_fills_the_workers(null_search, null_arm, tmp_path, monkeypatch) -> None:
    """Chains that begin first end beside the many trials that nobody waits for."""
    search = null_search(
        null_arm("random", algorithm=RandomSearch(num_trials=64)),
        null_arm("tpe", algorithm=Tpe(num_trials=16, window=2, num_startup=4)),
        null_arm("pbt", algorithm=Pbt(population=4, num_rounds=4)),
    )
    ours = makespan(a_plan(search, tmp_path / "ours"), 8)
    work = (64 + 16 + 4) * 8
    assert work / (8 * ours) > 0.95
    monkeypatch.setattr("tuneparts.search.queue._Queue.add", _first_in_first_out)
    assert makespan(a_plan(search, tmp_path / "fifo"), 8) > 1.4 * ours


def _first_in_first_out(self, segment: Segment, **_: object) -> None:
    rank = (False, 0, 0, next(self._arrivals))
    heapq.heappush(self._heaps[segment.trial.arm], (rank, segment))
