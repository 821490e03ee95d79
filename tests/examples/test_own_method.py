"""A search file with a method of its own runs in any process, and its run outlives the file."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import tuneparts
from tuneparts.executors import Place, execute
from tuneparts.methods import catalog
from tuneparts.search import load, runs
from tuneparts.search.code import Code
from tuneparts.search.events import Event, Row, TrialId
from tuneparts.search.journal import records
from tuneparts.search.spec import Search

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_method.py"
METHOD = "own_method:Averaged"
FACTS = {"command": "", "commit": "", "versions": {}, "storage": None}


@pytest.fixture
def search() -> Search:
    found: Search = load.load(str(EXAMPLE), scale="smoke", changes=["mean.batch_size=20"])
    return found


def rows(folder: Path) -> dict[str, Any]:
    """All rows, without times."""
    return {
        str(trial): (
            record.end and (record.end.outcome, record.end.message),
            {
                step: {k: v for k, v in row.metrics.items() if k != "cost/seconds"}
                for step, row in record.rows.items()
            },
        )
        for trial, record in sorted(records(folder / "journal.jsonl").items())
    }


def test_the_method_is_named_by_its_import_path(search) -> None:
    assert search.arm("mean").config.model_dump()["method"] == METHOD
    assert search.arm("last").config.model_dump()["method"] == "standard"
    assert not any(Path(entry) == EXAMPLE.parent for entry in sys.path)


def test_a_pool_gives_the_numbers_of_this_process(search, tmp_path) -> None:
    execute(search, folder=tmp_path / "one", place=Place("local", workers=1))
    execute(search, folder=tmp_path / "two", place=Place("local", workers=2))
    found = rows(tmp_path / "one")
    assert [end for end, _ in found.values()] == [("finished", "")] * 3
    assert rows(tmp_path / "two") == found
    kept = {file.name for file in (tmp_path / "one" / "code").iterdir()}
    assert kept - {"__pycache__"} == {"own_method.py"}


class Interrupt:
    """Presses Ctrl-C in the middle of the second trial."""

    left = 6

    def on_event(self, event: Event) -> None:
        self.left -= isinstance(event, Row)
        if self.left == 0:
            raise KeyboardInterrupt


def test_a_run_goes_on_when_its_file_is_gone(search, tmp_path) -> None:
    execute(search, folder=tmp_path / "whole", place=Place("local", workers=1))
    copy = shutil.copy(EXAMPLE, tmp_path)
    brought = load.load(copy, scale="smoke", changes=["mean.batch_size=20"])
    made = runs.create(tmp_path / "results", brought, **FACTS)
    once = {"folder": made.folder, "place": Place("local", workers=1)}
    assert execute(brought, **once, observers=[Interrupt()]) == "interrupted"

    Path(copy).write_text("raise RuntimeError('edited since')\n")
    load.load("rotated_digits", scale="smoke")  # another search forgets this one's modules
    again = runs.Run(made.root, made.name)
    assert again.card["code"] == Code.of(made.folder / "code").digest != ""
    assert execute(again.search, **once) == "done"
    assert rows(made.folder) == rows(tmp_path / "whole")

    load.load("rotated_digits", scale="smoke")
    results = tuneparts.Results(runs.Run(made.root, made.name))
    assert "mean" in results.answer
    learner = results.learner(TrialId("mean", 0, 1))
    assert type(learner).__name__ == "AveragedLearner"
    assert learner.finished


def test_workers_that_do_not_see_the_folder_unpack_the_code(search, tmp_path) -> None:
    execute(search, folder=tmp_path, place=Place("local", workers=1))
    sent = Code(str(tmp_path / "nowhere"), Code.of(tmp_path / "code").archive)
    with sent.importable():
        assert catalog.config_class(METHOD)().model_dump()["method"] == METHOD
        file = sys.modules["own_method"].__file__
    assert file is not None
    assert not Path(file).is_relative_to(tmp_path)
