import os
import resource
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneparts.core.errors import DataError, StorageError
from tuneparts.search.events import (
    VERSION,
    Row,
    TrialEnded,
    TrialId,
    TrialRunning,
    TrialStarted,
    read,
)
from tuneparts.search.journal import Journal

A = TrialId("random", 0, 3)
EVENTS = [
    TrialStarted(A, {"lr": 0.1, "net": {"name": "mlp"}}, 1.0),
    TrialRunning(A, 1.5),
    Row(A, 10, {"val/accuracy": 0.5}, 2.0),
    Row(A, 20, {"val/accuracy": float("inf")}, 3.0),
    TrialEnded(A, "failed", 4.0, 'ValueError: "quoted"\nand more'),
]


@given(
    arm=st.from_regex(r"[a-z][a-z0-9_]{0,10}", fullmatch=True),
    seed=st.integers(0),
    index=st.integers(0),
)
def test_a_trial_survives_text(arm: str, seed: int, index: int) -> None:
    trial = TrialId(arm, seed, index)
    assert TrialId.parse(str(trial)) == trial


def test_events_survive_the_disk(tmp_path) -> None:
    journal = Journal(tmp_path / "j.jsonl")
    assert all(journal.append(event) for event in EVENTS)
    journal.close()
    assert list(read(tmp_path / "j.jsonl")) == EVENTS
    again = Journal(tmp_path / "j.jsonl")
    assert again.events == EVENTS
    assert again.trials[A].last.step == 20
    again.close()


def test_a_new_journal_says_its_version_once(tmp_path) -> None:
    path = tmp_path / "j.jsonl"
    Journal(path).close()
    Journal(path).close()
    assert path.read_text() == f'{{"kind": "version", "version": {VERSION}}}\n'


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_a_journal_of_another_version_is_refused(tmp_path, version: int) -> None:
    path = tmp_path / "j.jsonl"
    path.write_text(f'{{"kind": "version", "version": {version}}}\n')
    with pytest.raises(DataError, match=rf"j\.jsonl: journal format {version}: another version"):
        Journal(path)


def test_events_are_synced_on_request_and_after_a_second(tmp_path, monkeypatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    journal = Journal(tmp_path / "j.jsonl")
    journal.append(EVENTS[0])
    assert not synced
    journal.sync()
    journal.sync()  # nothing new
    assert len(synced) == 1
    clock[0] += 1.5
    journal.append(EVENTS[1])
    assert len(synced) == 2
    journal.append(EVENTS[2])
    journal.close()
    assert len(synced) == 3


def append(journal: Journal, rows: list[Row]) -> int:
    return sum(journal.append(row) for row in rows)


def test_a_disk_that_fills_up_in_the_middle_of_2000_events_loses_none(tmp_path) -> None:
    """A file-size limit cuts a line in half as a full disk does; then space is made."""
    path, size = tmp_path / "j.jsonl", 100_000
    rows = [Row(A, step, {"val/accuracy": step / 7}, float(step)) for step in range(2000)]
    journal = Journal(path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        with pytest.raises(StorageError, match="nothing is lost"):
            append(journal, rows)
        kept = len(journal.events) - 1  # the last one was refused
        assert path.stat().st_size == size
        again = Journal(path)  # opened while the disk is still full
        assert again.events == rows[:kept]
        with pytest.raises(StorageError):
            append(again, rows)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    whole = Journal(path)
    assert whole.events == rows[:kept]
    assert append(whole, rows) == 2000 - kept
    whole.close()
    assert list(read(path)) == rows


def test_half_a_line_at_the_end_is_dropped_and_nothing_before_it(tmp_path, monkeypatch) -> None:
    path = tmp_path / "j.jsonl"
    journal = Journal(path)
    for event in EVENTS[:-1]:
        journal.append(event)
    journal.close()
    with path.open("a") as file:
        file.write('{"kind": "row", "tri')
    inode = path.stat().st_ino

    def full(self, *_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)  # the disk that tore the line is still full
    monkeypatch.setattr(Path, "write_text", full)
    torn = Journal(path)
    assert torn.events == EVENTS[:-1]
    assert path.stat().st_ino == inode
    torn.append(EVENTS[-1])
    torn.close()
    assert list(read(path)) == EVENTS


@pytest.mark.parametrize(
    "line",
    ["nonsense", '{"kind": "what"}', '{"kind": "row"}', "[]", '{"kind": "row", "trial": "x"}'],
)
def test_damage_in_the_middle_is_refused_with_the_line(tmp_path, line: str) -> None:
    path = tmp_path / "j.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(DataError, match=r"j.jsonl: line 1 is not an event"):
        Journal(path)


@pytest.mark.parametrize(
    "text",
    ["../x/seed0/00000", "a/b/seed0/00000", "a/seed0", "a/seed0/..", "a/seed0/0\n", "A/seed0/0"],
)
def test_a_trial_that_could_leave_its_folder_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a trial reads"):
        TrialId.parse(text)


def test_a_journal_that_was_removed_is_noticed(tmp_path: Path) -> None:
    here = Journal(tmp_path / "run" / "journal.jsonl")
    here.append(Row(TrialId("a", 0, 0), 1, {}, 0.0))
    here.path.unlink()
    here.append(Row(TrialId("a", 0, 0), 2, {}, 0.0))
    with pytest.raises(StorageError, match="was removed while"):
        here.sync()
    with pytest.raises(StorageError):
        here.append(Row(TrialId("a", 0, 0), 3, {}, 0.0))
