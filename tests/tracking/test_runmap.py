from pathlib import Path

import pytest

from tuneparts.errors import DataError
from tuneparts.journal import TrialId
from tuneparts.tracking import runmap


def test_a_folder_without_map_has_none(tmp_path: Path) -> None:
    assert runmap.load(tmp_path) is None


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    made = runmap.fresh(tmp_path / "new")
    assert runmap.load(tmp_path / "new") == made
    made.parent = "abc"
    made.trials[TrialId("random_x", 3, 12)] = "def"
    made.save(tmp_path / "new")
    assert runmap.load(tmp_path / "new") == made
    assert [path.name for path in (tmp_path / "new").iterdir()] == [runmap.FILE]


def test_two_folders_never_share_a_key(tmp_path: Path) -> None:
    assert runmap.fresh(tmp_path / "a").key != runmap.fresh(tmp_path / "b").key


@pytest.mark.parametrize("content", ["", "{", "[]", '{"key": "a"}', '{"trials": {"x": 1}}'])
def test_a_damaged_map_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / runmap.FILE).write_text(content)
    with pytest.raises(DataError, match=r"cannot be read"):
        runmap.load(tmp_path)


@pytest.mark.parametrize(
    "run_id", ["../../etc", "a/b", "", "x' or '1'='1", "a\n", None, 7, "a" * 65]
)
def test_an_id_that_could_leave_its_place_is_refused(tmp_path: Path, run_id: object) -> None:
    made = runmap.fresh(tmp_path)
    made.trials[TrialId("a", 0, 0)] = run_id  # type: ignore[assignment]
    made.save(tmp_path)
    with pytest.raises(DataError, match=r"tracking\.json"):
        runmap.load(tmp_path)
