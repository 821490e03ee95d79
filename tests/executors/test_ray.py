"""Ray's view of a plan, without a cluster: the searcher, and the trainable."""

from pathlib import Path
from typing import Any

import pytest

from tests.harness.faulty import FaultyConfig
from tuneparts.data.task import Task
from tuneparts.executors.worker import TrialSetting
from tuneparts.journal import Journal, TrialId
from tuneparts.search.plan import Plan
from tuneparts.search.segment import Segment
from tuneparts.search.spec import RandomSearch

pytestmark = pytest.mark.ray
BUNDLES = [{"CPU": 2.0}]
TRIALS = [TrialId("random", 0, number) for number in range(2)]


@pytest.fixture
def plan(null_search, null_arm, tmp_path) -> Plan:
    arm = null_arm("random", algorithm=RandomSearch(num_trials=2))
    return Plan(null_search(arm), Journal(tmp_path / "journal.jsonl"))


@pytest.fixture
def stopper() -> Any:
    from tuneparts.executors.ray.stopper import DiskFullStopper

    return DiskFullStopper()


@pytest.fixture
def searcher(plan, stopper) -> Any:
    from tuneparts.executors.ray.searcher import PlanSearcher

    return PlanSearcher(plan, {"random": BUNDLES}, stopper)


def row(passes: int) -> dict[str, float]:
    return {"cost/passes": float(passes), "val/accuracy": 0.5}


def test_segments_are_suggested_in_order_until_the_plan_is_done(searcher, plan) -> None:
    suggested = searcher.suggest("one")
    assert Segment.from_json(suggested["segment"]).trial == TRIALS[0]
    assert (suggested["bundles"], suggested["cpus"]) == (BUNDLES, 2.0)
    assert Segment.from_json(searcher.suggest("two")["segment"]).trial == TRIALS[1]
    assert searcher.suggest("three") is None
    for name in ("one", "two"):
        searcher.on_trial_result(name, {"rows": [row(2)], "done": False, "pid": 7, "time": 1.0})
        searcher.on_trial_complete(name, {"rows": [row(8)], "done": True, "finished": True})
    assert plan.done
    assert searcher.suggest("four") == "FINISHED"
    for trial in TRIALS:
        assert list(plan.journal.trials[trial].rows) == [2, 8]
        assert plan.journal.trials[trial].end.outcome == "finished"


def test_what_a_worker_says_of_a_failure_or_its_death_reaches_the_plan(searcher, plan) -> None:
    for name in ("one", "two"):
        searcher.suggest(name)
    searcher.on_trial_complete("one", {"rows": [row(2)], "failure": "ValueError: x", "done": True})
    for name in ("two", "three", "four"):
        searcher.on_trial_complete(name, error=True)
        again = searcher.suggest({"two": "three", "three": "four", "four": "five"}[name])
        assert Segment.from_json(again["segment"]).trial == TRIALS[1]
    searcher.on_trial_complete("five", error=True)
    ends = [plan.journal.trials[trial].end for trial in TRIALS]
    assert [end.outcome for end in ends] == ["failed", "failed"]
    assert ends[0].message == "ValueError: x"
    assert "died 4 times" in ends[1].message


def test_a_full_disk_stops_the_search_and_ends_no_trial(searcher, stopper, plan) -> None:
    for name in ("one", "two"):
        searcher.suggest(name)
    searcher.on_trial_complete("one", {"disk_full": "No space left", "done": True})
    assert stopper.stop_all()
    assert "tuneparts resume" in stopper.reason
    searcher.on_trial_complete("two", {"rows": [row(2)], "done": True})  # Ray ends it early
    assert [plan.journal.trials[trial].end for trial in TRIALS] == [None, None]
    assert searcher.suggest("three") == "FINISHED"


def test_the_trainable_runs_one_segment_after_another(tmp_path: Path) -> None:
    from tuneparts.executors.ray.trainable import LearnerTrainable

    def config(index: int) -> dict[str, Any]:
        plain = FaultyConfig(passes=4, interval=2).model_dump(mode="json")
        segment = Segment(trial=TrialId("arm", 0, index), config=plain, until=4)
        return {"segment": segment.to_json(), "bundles": BUNDLES, "cpus": 1.0}

    task: Any = Task  # null learners do not look at it
    worker = LearnerTrainable.__new__(LearnerTrainable)  # `__init__` asks a running Ray
    worker.setup(config(0), setting=TrialSetting(task, str(tmp_path), False, 60.0))
    for index in range(2):
        if index:
            assert worker.reset_config(config(index))
        results = [worker.step(), worker.step()]
        assert [result["rows"][0]["cost/passes"] for result in results] == [2, 4]
        assert [(r["done"], r["finished"]) for r in results] == [(False, False), (True, True)]
        assert (tmp_path / f"arm/seed0/0000{index}").is_dir()
