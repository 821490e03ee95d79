"""`tuneparts verify`: the same numbers twice, and a number that was tampered with."""

import json
from pathlib import Path

import pytest

from tuneparts import executors
from tuneparts.cli import _reading as verb
from tuneparts.core import settings
from tuneparts.core.errors import DataMissingError
from tuneparts.results import verifying
from tuneparts.search import runs
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.algorithms.halving import Asha


@pytest.fixture
def run(null_search, null_arm, tmp_path, monkeypatch) -> runs.Run:
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path))
    assert settings.current().results_dir == tmp_path
    search = null_search(
        null_arm("random", algorithm=RandomSearch(num_trials=4)),
        null_arm("asha", algorithm=Asha(num_trials=4, min_steps=2)),
    )
    made = runs.create(tmp_path, search, command="", commit="", versions={}, storage=None)
    executors.execute(search, folder=made.folder, place=executors.Place("local", workers=1))
    return made


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_number_is_the_same(run, capsys) -> None:
    before = files(run.folder)
    found = list(verifying.verify(run, num_trials=100))
    assert len(found) == 8  # those that were stopped at a rung too
    assert all(one.num_compared > 0 and not one.differences and not one.failure for one in found)
    assert files(run.folder) == before
    verb.verify(run.name, trials=2, seed=0)
    assert "numbers of 2 trials are the same" in capsys.readouterr().out


def test_the_choice_is_up_to_the_seed(run) -> None:
    chosen = [[one.trial for one in verifying.verify(run, num_trials=3, seed=s)] for s in (0, 0, 1)]
    assert chosen[0] == chosen[1] != chosen[2]


def test_a_number_that_was_changed_is_found(run, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    path = run.folder / "journal.jsonl"
    lines = path.read_text().splitlines()
    number = next(i for i, line in enumerate(lines) if '"kind": "row"' in line)
    event = json.loads(lines[number])
    event["metrics"]["val/accuracy"] += 1e-9
    lines[number] = json.dumps(event)
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(SystemExit) as left:
        verb.verify(run.name, trials=100, seed=0)
    assert left.value.code == 1
    said = capsys.readouterr().out
    assert f"{event['trial']}  1 of" in said
    assert "val/accuracy" in said
    assert repr(event["metrics"]["val/accuracy"]) in said


def test_a_run_without_ended_trials_is_refused(null_search, null_arm, tmp_path) -> None:
    search = null_search(null_arm("a"))
    made = runs.create(tmp_path, search, command="", commit="", versions={}, storage=None)
    (made.folder / "journal.jsonl").touch()
    with pytest.raises(DataMissingError, match="has none that did"):
        next(verifying.verify(made))


def test_packed_trials_are_trained_again_with_their_packs(tmp_path, monkeypatch) -> None:
    from tests.executors.test_packed import search

    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path))
    packed = search(trials=4, packed=3)
    made = runs.create(tmp_path, packed, command="", commit="", versions={}, storage=None)
    executors.execute(packed, folder=made.folder, place=executors.Place("local", workers=1))
    found = list(verifying.verify(made, num_trials=100))
    assert len(found) == 4
    assert all(one.num_compared > 0 and not one.differences and not one.failure for one in found)
