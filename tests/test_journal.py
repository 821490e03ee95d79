from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneparts.errors import DataError, StorageError
from tuneparts.journal import Journal, Row, TrialEnded, TrialId, TrialStarted, read

A = TrialId("random", 0, 3)
EVENTS = [
    TrialStarted(A, {"lr": 0.1, "net": {"name": "mlp"}}, 1.0),
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


def test_the_same_event_twice_is_no_news(tmp_path) -> None:
    journal = Journal(tmp_path / "j.jsonl")
    for event in EVENTS:
        journal.append(event)
    later = [Row(A, 20, {"val/accuracy": 0.9}, 9.0), TrialEnded(A, "finished", 9.0), EVENTS[0]]
    assert not any(journal.append(event) for event in later)
    assert journal.events == EVENTS
    journal.close()


def test_half_a_line_at_the_end_is_dropped_and_overwritten(tmp_path) -> None:
    path = tmp_path / "j.jsonl"
    journal = Journal(path)
    journal.append(EVENTS[0])
    journal.close()
    with path.open("a") as file:
        file.write('{"kind": "row", "tri')
    torn = Journal(path)
    assert torn.events == EVENTS[:1]
    torn.append(EVENTS[1])
    torn.close()
    assert list(read(path)) == EVENTS[:2]


def test_dropping_half_a_line_touches_nothing_before_it(tmp_path, monkeypatch) -> None:
    path = tmp_path / "j.jsonl"
    journal = Journal(path)
    for event in EVENTS:
        journal.append(event)
    journal.close()
    with path.open("a") as file:
        file.write('{"kind": "row", "tri')
    inode = path.stat().st_ino

    def full(self, *_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)  # the disk that tore the line is still full
    monkeypatch.setattr(Path, "write_text", full)
    assert Journal(path).events == EVENTS
    assert path.stat().st_ino == inode


@pytest.mark.parametrize(
    "line",
    ["nonsense", '{"kind": "what"}', '{"kind": "row"}', "[]", '{"kind": "row", "trial": "x"}'],
)
def test_damage_in_the_middle_is_refused_with_the_line(tmp_path, line: str) -> None:
    path = tmp_path / "j.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(DataError, match=r"line 1 of .*j.jsonl"):
        Journal(path)


@pytest.mark.parametrize(
    "text",
    ["../x/seed0/00000", "a/b/seed0/00000", "a/seed0", "a/seed0/..", "a/seed0/0\n", "A/seed0/0"],
)
def test_a_trial_that_could_leave_its_folder_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a trial reads"):
        TrialId.parse(text)


def test_a_full_disk_is_a_clear_error_and_nothing_is_told(tmp_path) -> None:
    path = tmp_path / "j.jsonl"
    journal = Journal(path)
    journal.append(EVENTS[0])
    journal._file.close()
    journal._file = open("/dev/full", "ab", buffering=0)  # noqa: SIM115
    for event in EVENTS[1:3]:
        with pytest.raises(StorageError, match=r"No space left|closed file"):
            journal.append(event)
    journal.close()
    assert list(read(path)) == EVENTS[:1]
