"""`tuneparts sync` on a run whose driver never reached MLflow."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tuneparts.cli.main import app
from tuneparts.core.errors import BusyError
from tuneparts.executors import lock
from tuneparts.search import load, runs
from tuneparts.search.events import Row, TrialEnded, TrialId, TrialStarted
from tuneparts.search.journal import Journal
from tuneparts.tracking import frames, store, tracker

pytestmark = pytest.mark.mlflow


@pytest.fixture
def run(results: Path, monkeypatch: pytest.MonkeyPatch) -> runs.Run:
    monkeypatch.setenv("COLUMNS", "200")
    search = load.load("rotated_digits", scale="smoke")
    facts = {"command": "", "commit": "", "versions": {}, "storage": None}
    made = runs.create(results, search, **facts)
    trial = TrialId("none", 0, 0)
    journal = Journal(made.folder / "journal.jsonl")
    journal.append(TrialStarted(trial, {"lr": 0.1}, 100.0))
    journal.append(Row(trial, 10, {"val/accuracy": 0.5, "val/nll": 1.5}, 101.0))
    journal.append(TrialEnded(trial, "finished", 102.0))
    journal.close()
    return made


def test_it_says_what_was_sent_and_the_second_time_that_all_is_there(run: runs.Run) -> None:
    first = CliRunner().invoke(app, ["sync"], catch_exceptions=False)
    assert first.exit_code == 0
    assert f"sent 2 MLflow runs and 2 points of {run.name} to sqlite:///" in first.output
    second = CliRunner().invoke(app, ["sync", run.name], catch_exceptions=False)
    assert f"already has every point of {run.name}" in second.output
    (found,) = frames.runs(store.resolve()).to_dict("records")
    assert (found["run"], found["finished"]) == (run.folder.name, 1)


def test_it_is_refused_while_a_driver_runs(run: runs.Run) -> None:
    with lock(run.folder), ThreadPoolExecutor(1) as elsewhere:
        found = elsewhere.submit(CliRunner().invoke, app, ["sync"], catch_exceptions=False)
        with pytest.raises(BusyError, match="one driver at a time"):
            found.result()
    assert not (run.folder / "tracking.json").exists()


def test_a_store_that_does_not_answer_is_a_failure_with_the_next_step(
    run: runs.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNEPARTS_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setattr(tracker.sync, "__kwdefaults__", {**_defaults(), "timeout": 0.2})
    done = CliRunner().invoke(app, ["sync"], catch_exceptions=False)
    assert done.exit_code == 1
    assert f"tuneparts sync {run.name}" in done.output


def _defaults() -> dict[str, object]:
    return dict(tracker.sync.__kwdefaults__ or {})
