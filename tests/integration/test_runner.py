"""Searches on a real Ray, with learners that do nothing."""

from pathlib import Path
from typing import Any

import pytest

from tuneparts.errors import BusyError, PlacementError
from tuneparts.journal import Journal
from tuneparts.search import load, runner
from tuneparts.search.spec import Search

pytestmark = pytest.mark.ray
TIMES = ("cost/seconds",)


def facts(folder: Path) -> dict[str, Any]:
    """All that could reach a table, without times."""
    journal = Journal(folder / "journal.jsonl")
    return {
        str(trial): (
            {
                step: {k: v for k, v in row.metrics.items() if k not in TIMES}
                for step, row in sorted(record.rows.items())
            },
            record.end and record.end.outcome,
        )
        for trial, record in sorted(journal.trials.items())
    }


def resolved(null_file: Path, **changes: Any) -> Search:
    search: Search = load.load(str(null_file), scale="smoke")
    return search.replaced(changes) if changes else search


def test_every_kind_of_arm_runs_to_its_end(local_ray, null_file, tmp_path) -> None:
    ending = runner.run(resolved(null_file), folder=tmp_path / "run")
    assert ending.status == "done"
    found = facts(tmp_path / "run")
    outcomes = {trial: outcome for trial, (_, outcome) in found.items()}
    assert len(outcomes) == 1 + 1 + 4 + 4 + 6 + 4 + 1
    assert outcomes.pop("broken/seed0/00000") == "failed"
    assert set(outcomes.values()) == {"finished", "stopped"}
    for trial, (rows, outcome) in found.items():
        if outcome == "finished":
            assert list(rows) == [2, 4, 6, 8], trial
            assert "test/accuracy" in rows[8]
    assert runner.run(resolved(null_file), folder=tmp_path / "run").status == "done"
    assert facts(tmp_path / "run") == found


def test_a_worker_that_dies_is_started_again_where_it_was(local_ray, null_file, tmp_path) -> None:
    search = resolved(null_file)
    fixed = search.arms[0]
    dying = fixed.replaced({"config.fault": "exit", "config.fault_folder": str(tmp_path)})
    mortal = search.model_copy(update={"arms": (dying,)})
    healthy = search.model_copy(update={"arms": (fixed,)})
    runner.run(mortal, folder=tmp_path / "mortal")
    runner.run(healthy, folder=tmp_path / "healthy")
    assert (tmp_path / "died").exists()
    assert facts(tmp_path / "mortal") == facts(tmp_path / "healthy")


def test_a_search_that_cannot_be_placed_is_refused_at_once(local_ray, null_file, tmp_path) -> None:
    search = resolved(null_file)
    greedy = search.arms[0].replaced({"resources.gpus": 3, "resources.custom": {"tpu": 1}})
    with pytest.raises(
        PlacementError, match=r"needs tpu 1, GPU 3 and the cluster has tpu 0, GPU 0"
    ):
        runner.run(search.model_copy(update={"arms": (greedy,)}), folder=tmp_path / "run")


def test_a_second_driver_is_refused(null_file, tmp_path) -> None:
    with (
        runner.exclusive(tmp_path / "run"),
        pytest.raises(BusyError, match="one driver at a time"),
    ):
        runner.run(resolved(null_file), folder=tmp_path / "run")
