import pytest

from tuneparts.errors import ConfigError, DataMissingError, StorageError
from tuneparts.search import runs


def test_a_run_remembers_its_search(null_search, null_arm, tmp_path) -> None:
    search = null_search(null_arm("a"))
    run = runs.create(tmp_path, search, commit="abc")
    assert runs.listing(tmp_path) == [run]
    assert runs.named(tmp_path, None) == run
    assert runs.named(tmp_path, run.name) == run
    assert runs.named(tmp_path, "null") == run
    assert run.search == search
    assert run.card["commit"] == "abc"


def test_no_run_yet_teaches_the_first_command(tmp_path) -> None:
    with pytest.raises(DataMissingError, match="tuneparts search rotated_digits"):
        runs.named(tmp_path, None)


@pytest.mark.parametrize("name", ["../elsewhere", "/etc", "null/../../x", "nothing"])
def test_a_name_cannot_leave_the_results(null_search, null_arm, tmp_path, name: str) -> None:
    runs.create(tmp_path, null_search(null_arm("a")))
    with pytest.raises(ConfigError, match="is not a run"):
        runs.named(tmp_path, name)


def test_the_card_is_read_and_parsed_once(null_search, null_arm, tmp_path) -> None:
    search = null_search(null_arm("a"))
    made = runs.create(tmp_path, search, storage=None)
    assert made.search is search
    found = runs.named(tmp_path, None)
    first = found.search
    (found.folder / "run.json").unlink()
    assert found.search is first
    assert found.card["digest"] == search.digest
    assert found.storage == runs.default_storage(found.folder)


def test_a_damaged_card_is_refused(null_search, null_arm, tmp_path) -> None:
    run = runs.create(tmp_path, null_search(null_arm("a")))
    (run.folder / "run.json").write_text("{")
    with pytest.raises(DataMissingError, match=r"run\.json"):
        assert runs.Run(run.root, run.name).card


def test_results_that_cannot_be_written_are_an_error_that_names_them(
    null_search, null_arm, tmp_path
) -> None:
    (tmp_path / "results").write_text("a file")
    with pytest.raises(StorageError, match=r"no run can begin in .*results"):
        runs.create(tmp_path / "results", null_search(null_arm("a")))
