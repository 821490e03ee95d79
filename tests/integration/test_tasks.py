"""Tasks inside trials on a real Ray: clients of a federated run, and what becomes of lost ones."""

import os
import time

import pytest

from tuneparts.core.errors import PlacementError
from tuneparts.data.config import Data
from tuneparts.executors import Place, execute
from tuneparts.methods.federated import Federated
from tuneparts.search.arm import Arm, Resources
from tuneparts.search.journal import records
from tuneparts.search.spec import Scale, Search

pytestmark = pytest.mark.ray
HALF = {"cpus": 0.5, "gpus": 0.0}


@pytest.mark.slow
def test_results_come_in_order_and_losses_stay_in_their_place(local_ray) -> None:
    from tuneparts.executors.ray.tasks import RayTasks

    def work(offset: int, job: str) -> int:
        if job == "raise":
            raise LookupError("not here")
        if job == "die":
            os._exit(1)
        if job == "hang":
            time.sleep(600)
        return offset + int(job)

    tasks = RayTasks()
    jobs = ["1", "raise", "2", "die", "3"]
    results = tasks.run(work, (tasks.share(10),), jobs, at_once=2, timeout=None, **HALF)
    assert [r for r in results if isinstance(r, int)] == [11, 12, 13]
    assert isinstance(results[1], LookupError)
    assert isinstance(results[3], Exception)
    late = tasks.run(work, (tasks.share(10),), ["hang", "4"], at_once=2, timeout=20.0, **HALF)
    assert isinstance(late[0], TimeoutError)
    assert late[1] == 14


def a_search(**fields) -> Search:
    turn = Federated(
        steps=40,
        interval=15,
        batch_size=8,
        clients_per_round=5,
        hypers={"temperature": 2.0},
    )
    tasks = turn.replaced({"tasks": {"clients_per_task": 2, "cpus": 0.5, **fields}})
    return Search(
        name="tasks",
        question="Do tasks change a number?",
        scale=Scale.SMOKE,
        data=Data(name="digits", num_train=80, num_val=20, num_test=20),
        metric="val/accuracy",
        steps=40,
        seeds=(0,),
        arms=(
            Arm(name="turn", config=turn, resources=Resources(cpus=1)),
            Arm(name="tasks", config=tasks, resources=Resources(cpus=1)),
        ),
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_clients_in_tasks_give_the_numbers_of_clients_in_turn(local_ray, tmp_path) -> None:
    execute(a_search(), folder=tmp_path / "run", place=Place("ray"))
    rows = {}
    for trial, record in records(tmp_path / "run" / "journal.jsonl").items():
        assert record.end is not None
        assert record.end.outcome == "finished", record.end.message
        rows[trial.arm] = [
            {name: value for name, value in row.metrics.items() if name != "cost/seconds"}
            for row in record.rows.values()
        ]
    assert len(rows["turn"]) >= 2
    assert rows["tasks"] == rows["turn"]


def test_bundles_of_tasks_are_part_of_what_a_trial_needs(local_ray, tmp_path) -> None:
    with pytest.raises(
        PlacementError, match=r"`tasks`: .* need CPU 3 together, and the cluster has CPU 2"
    ):
        execute(a_search(num_tasks=4), folder=tmp_path / "run", place=Place("ray"))
