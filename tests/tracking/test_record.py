from pathlib import Path

import pytest

from tuneparts.core.errors import DataError
from tuneparts.search.events import TrialId
from tuneparts.tracking import record


def test_a_folder_without_map_has_none(tmp_path: Path) -> None:
    assert record.load(tmp_path) is None


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    made = record.create(tmp_path / "new", 1.5)
    assert record.load(tmp_path / "new") == made
    made.parent, made.experiment = "abc", "12"
    made.trials[TrialId("random_x", 3, 12)] = "def"
    made.save()
    assert record.load(tmp_path / "new") == made
    assert [path.name for path in (tmp_path / "new").iterdir()] == [record.FILE]


def test_everything_that_is_asked_for_is_kept(tmp_path: Path) -> None:
    trial = TrialId("a", 0, 1)
    made = record.create(tmp_path, 1.5)
    made.ending, made.answer, made.artifacts = ("KILLED", 2.5), "a wins.", ("report",)
    made.tags = {trial: {"selected": "yes"}}
    made.remember("sqlite:///x", "abc", {trial: "def"}, 17)
    assert record.load(tmp_path) == made


def test_a_file_of_an_older_version_is_read(tmp_path: Path) -> None:
    (tmp_path / record.FILE).write_text(
        '{"key": "k", "parent": "p", "trials": {"a/seed0/00001": "r"}}'
    )
    found = record.load(tmp_path)
    assert found == record.Record(tmp_path, "k", parent="p", trials={TrialId("a", 0, 1): "r"})


def test_two_folders_never_share_a_key(tmp_path: Path) -> None:
    assert record.create(tmp_path / "a", 1.0).key != record.create(tmp_path / "b", 1.0).key


@pytest.mark.parametrize("content", ["", "{", "[]", '{"key": "a"}', '{"trials": {"x": 1}}'])
def test_a_damaged_map_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / record.FILE).write_text(content)
    with pytest.raises(DataError, match=r"cannot be read"):
        record.load(tmp_path)
