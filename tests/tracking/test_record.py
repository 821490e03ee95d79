from pathlib import Path

import pytest

from tuneparts.core.errors import DataError
from tuneparts.search.events import TrialId
from tuneparts.tracking import record


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    assert record.load(tmp_path) is None
    trial = TrialId("random_x", 3, 12)
    made = record._create(tmp_path, 1.5)
    assert record.load(tmp_path) == made
    made.ending, made.answer, made.artifacts = ("KILLED", 2.5), "a wins.", ("report",)
    made.tags, made.experiment = {trial: {"selected": "yes"}}, "12"
    made.save(parent="abc", trials={trial: "def"})
    assert record.load(tmp_path) == made
    assert [path.name for path in tmp_path.iterdir()] == [record.FILE]
    assert record._create(tmp_path / "other", 1.5).key != made.key


def test_a_file_of_an_older_version_is_read(tmp_path: Path) -> None:
    (tmp_path / record.FILE).write_text(
        '{"key": "k", "parent": "p", "trials": {"a/seed0/00001": "r"}}'
    )
    found = record.load(tmp_path)
    assert found == record.Record(tmp_path, "k", parent="p", trials={TrialId("a", 0, 1): "r"})


@pytest.mark.parametrize("content", ["", "{", "[]", '{"key": "a"}', '{"trials": {"x": 1}}'])
def test_a_damaged_map_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / record.FILE).write_text(content)
    with pytest.raises(DataError, match=r"cannot be read"):
        record.load(tmp_path)
