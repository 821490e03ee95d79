"""Searches on a real Ray, with learners that do nothing."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tuneparts.core.errors import PlacementError, StorageError
from tuneparts.executors import Place, execute, lock, logs
from tuneparts.search import load
from tuneparts.search.events import Event, Row, TrialId
from tuneparts.search.journal import records
from tuneparts.search.runs import default_storage
from tuneparts.search.spec import Search
from tuneparts.search.storage import Folder

pytestmark = pytest.mark.ray
TIMES = ("cost/seconds",)


def facts(folder: Path) -> dict[str, Any]:
    """All that could reach a table, without times."""
    return {
        str(trial): (
            {
                step: {k: v for k, v in row.metrics.items() if k not in TIMES}
                for step, row in sorted(record.rows.items())
            },
            record.end and (record.end.outcome, record.end.message),
            list(record.configs),
        )
        for trial, record in sorted(records(folder / "journal.jsonl").items())
    }


def resolved(null_file: Path, **changes: Any) -> Search:
    search: Search = load.load(str(null_file), scale="smoke")
    return search.replaced(changes) if changes else search


@pytest.fixture(scope="module")
def on_ray(local_ray, null_file, tmp_path_factory) -> Path:
    """The folder of a search with an arm of each kind that ran on Ray."""
    folder = tmp_path_factory.mktemp("run")
    assert execute(resolved(null_file), folder=folder, place=Place("ray")) == "done"
    return folder


def test_every_kind_of_arm_runs_to_its_end(on_ray, null_file) -> None:
    found = facts(on_ray)
    outcomes = {trial: end[0] for trial, (_, end, _) in found.items()}
    assert len(outcomes) == 1 + 1 + 4 + 4 + 6 + 4 + 1
    assert outcomes.pop("broken/seed0/00000") == "failed"
    assert set(outcomes.values()) == {"finished", "stopped"}
    for trial, (rows, _, _) in found.items():
        if outcomes.get(trial) == "finished":
            assert list(rows) == [2, 4, 6, 8], trial
            assert "test/accuracy" in rows[8]
    assert execute(resolved(null_file), folder=on_ray, place=Place("ray")) == "done"
    assert facts(on_ray) == found


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_ray_and_the_local_executor_write_the_same_journal(
    on_ray, null_file, tmp_path, workers: int
) -> None:
    execute(resolved(null_file), folder=tmp_path, place=Place("local", workers=workers))
    assert facts(tmp_path) == facts(on_ray)


@pytest.mark.slow
def test_a_worker_that_dies_is_started_again_where_it_was(local_ray, null_file, tmp_path) -> None:
    search = resolved(null_file)
    fixed = search.arms[0]
    dying = fixed.replaced({"config.fault": "exit", "config.fault_folder": str(tmp_path)})
    mortal = search.model_copy(update={"arms": (dying,)})
    healthy = search.model_copy(update={"arms": (fixed,)})
    execute(mortal, folder=tmp_path / "mortal", place=Place("ray"))
    execute(healthy, folder=tmp_path / "healthy", place=Place("ray"))
    assert (tmp_path / "died").exists()
    (mortal_end,), (healthy_end,) = (facts(tmp_path / n).values() for n in ("mortal", "healthy"))
    assert mortal_end[:2] == healthy_end[:2]


def test_a_search_that_cannot_be_placed_is_refused_at_once(local_ray, null_file, tmp_path) -> None:
    search = resolved(null_file)
    greedy = search.arms[0].replaced({"resources.cpus": 9, "resources.custom": {"tpu": 1}})
    with pytest.raises(
        PlacementError, match=r"needs CPU 9, tpu 1 and the cluster has CPU 2, tpu 0"
    ):
        execute(
            search.model_copy(update={"arms": (greedy,)}),
            folder=tmp_path / "run",
            place=Place("ray"),
        )


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raise", "ValueError: asked to fail"),
        pytest.param("nan", "ArithmeticError: loss is nan", marks=pytest.mark.slow),
        pytest.param("memory", "MemoryError", marks=pytest.mark.slow),
        pytest.param("killed", "the worker process died 4 times", marks=pytest.mark.slow),
        pytest.param("hang", "an interval ends within 5 s", marks=pytest.mark.slow),
    ],
)
def test_a_trial_that_cannot_go_on_fails_alone(
    local_ray, null_file, tmp_path, monkeypatch, fault: str, message: str
) -> None:
    monkeypatch.setenv("TUNEPARTS_INTERVAL_LIMIT", "5")
    search = resolved(null_file)
    arms = (search.arms[0].replaced({"name": "bad", "config.fault": fault}), search.arms[0])
    assert (
        execute(search.model_copy(update={"arms": arms}), folder=tmp_path, place=Place("ray"))
        == "done"
    )
    trials = records(tmp_path / "journal.jsonl")
    bad, good = (trials[TrialId(arm.name, 0, 0)] for arm in arms)
    assert bad.end.outcome == "failed"
    assert message in bad.end.message
    assert list(bad.rows) == [2]
    assert good.end.outcome == "finished"
    storage = Folder(default_storage(tmp_path))
    lines = [logs.read(storage, TrialId(arm.name, 0, 0)) for arm in arms]
    assert len(lines[1]) == 1
    assert "FaultyConfig from 0 to 8 steps on " in lines[1][0]
    if fault == "killed":
        assert [("from 2 to 8" in line) for line in lines[0]] == [False, True, True, True]
    else:
        assert message in lines[0][-1]
        assert any("Traceback" in line for line in lines[0])


@pytest.mark.slow
@pytest.mark.parametrize("where", ["journal", "checkpoints"])
def test_a_full_disk_stops_the_search_which_resumes_after_space_is_made(
    local_ray, null_file, tmp_path, small_disk, where: str
) -> None:
    search = resolved(null_file)
    search = search.model_copy(update={"arms": search.arms[:3]})
    folder = small_disk / "run" if where == "journal" else tmp_path / "run"
    storage = str(tmp_path / "trials" if where == "journal" else small_disk / "trials")
    with lock(folder):
        pass
    ballast = small_disk / "ballast"

    class Fill:
        """Takes all space once there are a few rows."""

        rows = 0

        def on_event(self, event: Event) -> None:
            self.rows += isinstance(event, Row)
            if self.rows == 5 and not ballast.exists():
                with suppress(OSError), ballast.open("wb", buffering=0) as file:
                    while file.write(b"x" * 512):
                        pass

    with pytest.raises(StorageError, match=r"(No space left|half a line).*tuneparts resume"):
        execute(search, folder=folder, place=Place("ray"), storage=storage, observers=[Fill()])
    ballast.unlink()
    assert execute(search, folder=folder, place=Place("ray"), storage=storage) == "done"
    execute(search, folder=tmp_path / "undisturbed", place=Place("ray"))
    assert facts(folder) == facts(tmp_path / "undisturbed")


@pytest.mark.slow
def test_packed_trials_on_ray_give_the_journal_of_this_process(local_ray, tmp_path) -> None:
    from tests.executors.test_packed import search

    execute(search(), folder=tmp_path / "ray", place=Place("ray"))
    execute(search(), folder=tmp_path / "here", place=Place("local", workers=1))
    found = facts(tmp_path / "ray")
    assert found == facts(tmp_path / "here")
    assert {end[0] for _, end, _ in found.values()} == {"finished"}
