"""Runs that were made at commit 36fa799 read, compare and resume as they did then, to the letter.

`RECORD_WRITE=1 pytest tests/recorded` writes what is expected anew: read the difference.
"""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import tuneparts
from tuneparts.cli.main import app

HERE = Path(__file__).parent
RUNS = HERE / "runs"
NAMES = sorted(path.name for path in RUNS.iterdir())
PASSING = ["run_id", "start", "end", "cost/seconds"]
"""Columns that differ from run to run."""


def test_there_are_recordings_of_everything() -> None:
    assert len(NAMES) == 16


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_run_reads_as_it_did(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(RUNS))
    results = tuneparts.load(name)
    found = {
        "answer": results.answer,
        "trials": rows(results.trials),
        "steps": digest(results.steps),
        "report": printed("report", name),
        "compare": printed("compare", name),
    }
    assert found == expected(name, found)


@pytest.mark.mlflow
def test_the_killed_run_resumes_as_it_did(results: Path) -> None:
    shutil.copytree(RUNS / "killed", results / "killed")
    resumed = tuneparts.resume("killed", workers=1)
    steps = resumed.steps[resumed.steps["metric"] != "cost/seconds"].drop(columns="time")
    trials = resumed.trials.drop(columns=PASSING)
    assert set(trials["outcome"]) == {"finished"}
    found = {"trials": rows(trials), "steps": digest(steps)}
    assert found == expected("killed_resumed", found)


def printed(verb: str, name: str) -> Any:
    """What a verb prints as JSON, or why it does not."""
    result = CliRunner().invoke(app, [verb, name, "--json"])
    return json.loads(result.stdout) if result.exit_code == 0 else str(result.exception)


def rows(frame: pd.DataFrame) -> list[str]:
    return frame.to_csv(index=False).splitlines()


def digest(frame: pd.DataFrame) -> str:
    """Of a frame that would be long to keep; the journal beside it holds its numbers."""
    return hashlib.sha256(frame.to_csv(index=False).encode()).hexdigest()


def expected(name: str, found: dict[str, Any]) -> Any:
    path = HERE / "expected" / f"{name}.json"
    if os.environ.get("RECORD_WRITE"):
        path.write_text(json.dumps(found, indent=1) + "\n")
    return json.loads(path.read_text())
