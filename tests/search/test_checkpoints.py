import logging
from functools import partial
from pathlib import Path

import pytest

from tuneparts.core.errors import CheckpointError, SecurityError
from tuneparts.search.checkpoints import CheckpointStore
from tuneparts.search.events import TrialId
from tuneparts.search.segment import Segment
from tuneparts.search.storage import Folder

A, B = TrialId("pbt", 0, 1), TrialId("pbt", 0, 2)


def segment(trial: TrialId = A, number: int = 0, donor: TrialId | None = None) -> Segment:
    return Segment(trial=trial, config={}, until=10, round=number, donor=donor)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(Folder(str(tmp_path)))


def files(tmp_path: Path, trial: TrialId = A) -> list[str]:
    return sorted(path.name for path in (tmp_path / str(trial)).iterdir())


def test_the_newest_of_the_round_is_found_and_two_are_kept(store, tmp_path) -> None:
    assert store.find(segment()) is None
    for steps in (2, 4, 6, 8):
        store.put(segment(), steps, {"steps": steps}, last=False)
    assert files(tmp_path) == ["r000-p000000006.pt", "r000-p000000008.pt"]
    found = store.find(segment())
    assert found.state == {"steps": 8}
    assert found.round == 0


def test_the_last_state_of_a_trial_is_that_of_its_newest_round(store, tmp_path) -> None:
    assert store.last(A) is None
    store.put(segment(), 10, {"steps": 10}, last=True)
    store.put(segment(number=1), 12, {"steps": 12}, last=False)
    assert store.last(A) == {"steps": 12}
    (tmp_path / str(A) / "r001-p000000012.pt").write_bytes(b"damaged")
    assert store.last(A) == {"steps": 10}


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty"])
def test_a_damaged_state_gives_way_to_the_one_before(store, tmp_path, caplog, damage: str) -> None:
    for steps in (2, 4):
        store.put(segment(), steps, {"steps": steps}, last=False)
    path = tmp_path / str(A) / "r000-p000000004.pt"
    content = path.read_bytes()
    half = len(content) // 2
    path.write_bytes(
        {
            "truncate": content[:half],
            "flip": content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :],
            "empty": b"",
        }[damage]
    )
    with caplog.at_level(logging.WARNING):
        assert store.find(segment()).state == {"steps": 2}
    assert "The one before it is used" in caplog.text


def test_a_round_starts_from_its_own_or_a_donors_milestone(store, tmp_path) -> None:
    for trial, mark in ((A, "a"), (B, "b")):
        store.put(segment(trial), 5, {"mark": mark}, last=False)
        store.put(segment(trial), 10, {"mark": mark}, last=True)
        assert files(tmp_path, trial) == ["r000-p000000010.pt"]
    own = store.find(segment(A, 1))
    assert own.state == {"mark": "a"}
    assert own.round == 0
    assert store.find(segment(A, 1, donor=B)).state == {"mark": "b"}
    store.put(segment(A, 1), 15, {"mark": "later"}, last=False)
    assert store.find(segment(A, 1, donor=B)).state == {"mark": "later"}
    assert files(tmp_path) == ["r000-p000000010.pt", "r001-p000000015.pt"]


def test_old_milestones_go(store, tmp_path) -> None:
    for number in range(4):
        store.put(segment(A, number), 10 * (number + 1), {}, last=True)
    assert files(tmp_path) == ["r002-p000000030.pt", "r003-p000000040.pt"]


def test_a_lost_milestone_is_an_error_that_says_where(store) -> None:
    with pytest.raises(CheckpointError, match=r"round 1 of pbt/seed0/00001"):
        store.find(segment(A, 1))


def test_a_hang_is_remembered_until_there_is_progress(store, tmp_path) -> None:
    store.put(segment(), 2, {"steps": 2}, last=False)
    assert not store.has_hung(segment(), 2)
    store.note_hang(segment(), 2)
    assert store.has_hung(segment(), 2)
    assert not store.has_hung(segment(), 4)
    assert not store.has_hung(segment(B), 2)
    assert store.find(segment()).state == {"steps": 2}
    store.put(segment(), 4, {"steps": 4}, last=False)
    assert not store.has_hung(segment(), 2)


def test_only_what_the_store_wrote_is_deleted_and_no_link_is_followed(store, tmp_path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "chapter.txt").write_text("mine")
    (precious / "r000-p000000001.pt").write_text("mine too")
    (tmp_path / str(A)).parent.mkdir(parents=True)
    (tmp_path / str(A)).symlink_to(precious)
    for touch in (store.remove, store.last, partial(store.remove, only_hangs=True)):
        with pytest.raises(SecurityError, match="is a link, and none is followed"):
            touch(A)
    store.put(segment(B), 2, {}, last=False)
    (tmp_path / str(B) / "notes.txt").write_text("mine")
    (tmp_path / str(B) / "r000-p000000001.pt").symlink_to(precious / "r000-p000000001.pt")
    store.put(segment(B), 4, {}, last=True)
    store.remove(B)
    assert files(tmp_path, B) == ["notes.txt", "r000-p000000001.pt"]
    assert sorted(path.name for path in precious.iterdir()) == ["chapter.txt", "r000-p000000001.pt"]
