"""Runs of the first release, which had no version: they open, and go on where they were.

`tests/fixtures/version_1` was written by it: a search of populations that was interrupted in its
last round but one, and a finished search of real methods without its checkpoints.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tuneparts.api.results import Results
from tuneparts.errors import ConfigError
from tuneparts.executors import execute
from tuneparts.journal import records
from tuneparts.search import runs

FIXTURES = Path(__file__).parents[1] / "fixtures" / "version_1"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES, tmp_path / "results"))


def facts(folder: Path) -> dict[str, Any]:
    """What reaches tables, and the config that each trial ended with."""
    return {
        str(trial): (
            record.config,
            {
                step: {k: v for k, v in row.metrics.items() if k != "cost/seconds"}
                for step, row in sorted(record.rows.items())
            },
            record.end and (record.end.outcome, record.end.message),
        )
        for trial, record in sorted(records(folder / "journal.jsonl").items())
    }


def test_a_finished_run_opens(root) -> None:
    results = Results(runs.named(root, "rotated_digits"))
    assert results.answer.startswith("partitioned ") or results.answer.startswith("none ")
    assert results.trials["outcome"].tolist() == ["finished", "finished"]
    assert results.run.card["version"] == runs.VERSION
    assert results.run.created > 1e9


def test_an_interrupted_run_ends_as_one_that_was_never_interrupted(root, tmp_path) -> None:
    run = runs.named(root, "null")
    assert execute(run.search, folder=run.folder, executor="local", workers=1).status == "done"
    execute(run.search, folder=tmp_path / "new", executor="local", workers=1)
    assert facts(run.folder) == facts(tmp_path / "new")
    assert "version" not in json.loads((run.folder / "run.json").read_text())


def test_a_run_of_a_newer_version_is_refused(root) -> None:
    run = runs.named(root, "null")
    card = json.loads((run.folder / "run.json").read_text())
    (run.folder / "run.json").write_text(json.dumps(card | {"version": 3}))
    with pytest.raises(ConfigError, match=r"at most format 2 here, but null/.* has 3: a newer"):
        assert runs.named(root, "null").search
