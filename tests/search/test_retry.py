"""Trials that failed are tried again where nothing was decided by their failure."""

from pathlib import Path
from typing import Any

import pytest

from tests.search.playing import play
from tuneparts.executors import Place, execute
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.algorithms.halving import Asha
from tuneparts.search.algorithms.sampler import Tpe
from tuneparts.search.checkpoints import CheckpointStore
from tuneparts.search.events import TrialId
from tuneparts.search.extension import retry_failed
from tuneparts.search.journal import Journal, records
from tuneparts.search.segment import Segment
from tuneparts.search.spec import Search
from tuneparts.search.storage import Folder


def fails(index: int, *, until: int = 8) -> Any:
    return lambda segment: segment.trial.index == index and segment.until == until


def run(search: Search, path: Path, fails: Any = lambda _: False) -> Journal:
    return play(search, path, row, fails=fails)


def row(segment: Segment) -> dict[str, float]:
    return {"val/accuracy": segment.config["x"], "hyper/rotation": 0.25}


def outcomes(journal: Journal) -> dict[str, str]:
    return {str(trial): record.end.outcome for trial, record in sorted(journal.trials.items())}


def test_a_failed_trial_of_random_search_runs_again(null_search, null_arm, tmp_path) -> None:
    search = null_search(null_arm("random", algorithm=RandomSearch(num_trials=3)))
    path = tmp_path / "journal.jsonl"
    first = run(search, path, fails(1))
    assert outcomes(first)["random/seed0/00001"] == "failed"
    done = retry_failed(search, path, str(tmp_path / "trials"))
    assert done.retried == (TrialId("random", 0, 1),)
    assert done.decided == ()
    assert set(outcomes(run(search, path)).values()) == {"finished"}
    assert retry_failed(search, path, str(tmp_path / "trials")).retried == ()


@pytest.mark.parametrize(
    ("algorithm", "failing", "can_retry"),
    [
        (Tpe(num_trials=4, window=2, num_startup=1), fails(3), True),
        (Tpe(num_trials=4, window=2, num_startup=1), fails(1), False),
        (Asha(num_trials=4, min_steps=4, reduction=2), fails(0, until=4), False),
        (Asha(num_trials=4, min_steps=4, reduction=2), fails(0), True),
    ],
)
def test_what_an_algorithm_has_gone_on_from_stays(
    null_search, null_arm, tmp_path, algorithm, failing, can_retry: bool
) -> None:
    search = null_search(null_arm("arm", algorithm=algorithm))
    path = tmp_path / "journal.jsonl"
    before = outcomes(run(search, path, failing))
    done = retry_failed(search, path, str(tmp_path / "trials"))
    assert (len(done.retried), len(done.decided)) == ((1, 0) if can_retry else (0, 1))
    after = outcomes(run(search, path))
    assert list(after.values()).count("failed") == (0 if can_retry else 1)
    assert after.keys() == before.keys()


def test_a_follower_that_had_no_leader_runs_with_it(null_search, null_arm, tmp_path) -> None:
    search = null_search(
        null_arm("one", algorithm=RandomSearch(num_trials=1)), null_arm("again", hypers_from="one")
    )
    path = tmp_path / "journal.jsonl"
    first = run(search, path, lambda segment: segment.trial.arm == "one")
    assert set(outcomes(first).values()) == {"failed"}
    assert len(retry_failed(search, path, str(tmp_path)).retried) == 2
    after = run(search, path)
    assert set(outcomes(after).values()) == {"finished"}
    assert after.trials[TrialId("again", 0, 0)].config["hypers"]["affine"]["rotation"] == 0.25


def test_a_trial_whose_follower_has_trained_stays(null_search, null_arm, tmp_path) -> None:
    search = null_search(
        null_arm("random", algorithm=RandomSearch(num_trials=2)),
        null_arm("again", hypers_from="random"),
    )
    path = tmp_path / "journal.jsonl"
    run(search, path, lambda segment: str(segment.trial) == "random/seed0/00001")
    assert retry_failed(search, path, str(tmp_path)).decided == (TrialId("random", 0, 1),)


def test_it_goes_on_from_its_last_checkpoint_and_a_hang_is_forgiven(
    null_search, null_arm, tmp_path
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    config = {"fault": "once", "fault_folder": str(marks)}
    search = null_search(null_arm("bad", config=config))
    folder, trial = tmp_path / "run", TrialId("bad", 0, 0)
    execute(search, folder=folder, place=Place("local", workers=1))
    assert records(folder / "journal.jsonl")[trial].end.message == "ValueError: asked to fail once"
    store = CheckpointStore(Folder(str(folder / "trials")))
    segment = Segment(trial=trial, config={}, until=8)
    store.note_hang(segment, 2)
    retry_failed(search, folder / "journal.jsonl", str(folder / "trials"))
    assert not store.has_hung(segment, 2)
    execute(search, folder=folder, place=Place("local", workers=1))
    record = records(folder / "journal.jsonl")[trial]
    assert record.end.outcome == "finished"
    assert sorted(record.rows) == [2, 4, 6, 8]
    log = (folder / "trials" / str(trial) / "log" / "log.txt").read_text()
    assert "from 2 to 8 steps" in log
