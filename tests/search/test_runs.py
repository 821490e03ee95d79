import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tuneparts.core.errors import ConfigError, DataMissingError, StorageError
from tuneparts.search import runs
from tuneparts.search.events import TrialId, TrialRunning, TrialStarted
from tuneparts.search.journal import Journal


def begun(run: runs.Run) -> runs.Run:
    """Let a worker have taken up a trial of a run."""
    journal = Journal(run.folder / "journal.jsonl")
    journal.append(TrialRunning(TrialId("a", 0, 0), 1.0))
    journal.close()
    return run


def test_a_run_remembers_its_search(null_search, null_arm, tmp_path) -> None:
    search = null_search(null_arm("a"))
    run = begun(runs.create(tmp_path, search, commit="abc"))
    assert runs.listing(tmp_path) == [run]
    assert runs.named(tmp_path, None) == run
    assert runs.named(tmp_path, run.name) == run
    assert runs.named(tmp_path, "null") == run
    assert run.search == search
    assert (run.card["commit"], runs.named(tmp_path, "null").card["command"]) == ("abc", "")


def test_names_are_in_utc_and_the_newest_is_so_by_its_card(
    null_search, null_arm, tmp_path, monkeypatch
) -> None:
    """A clock that is set back, or a head in another time zone, changes nothing."""
    search = null_search(null_arm("a"))
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        monkeypatch.setattr(time, "time", lambda: 1_700_000_000.5)
        first = begun(runs.create(tmp_path, search))
        assert first.name == f"null/20231114-221320Z-{search.digest}"
        second = tmp_path / f"null/20231114-230000Z-{search.digest}"
        shutil.copytree(first.folder, second)
        card = json.loads((second / "run.json").read_text())
        (second / "run.json").write_text("damaged")  # its name says when
        third = tmp_path / f"null/20200101-000000Z-{search.digest}"
        shutil.copytree(first.folder, third)
        (third / "run.json").write_text(json.dumps(card | {"created": 1.8e9}))
        assert [run.folder for run in runs.listing(tmp_path)] == [first.folder, second, third]
        assert runs.named(tmp_path, "null").folder == third
        found = runs.newest_of(tmp_path, search)
        assert found is not None
        assert found.folder == third
        assert runs.newest_of(tmp_path, null_search(null_arm("b"))) is None
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_start_that_failed_is_nobodys_newest_run(null_search, null_arm, tmp_path) -> None:
    search = null_search(null_arm("a"))
    old = begun(runs.create(tmp_path, search))
    never = runs.create(tmp_path, search)
    journal = Journal(never.folder / "journal.jsonl")
    journal.append(TrialStarted(TrialId("a", 0, 0), {}, 1.0))  # it was planned, but nobody took it
    journal.close()
    for name in (None, "null"):
        assert runs.named(tmp_path, name, begun=True) == old
        assert runs.named(tmp_path, name) == never  # which may be starting, and is to be stopped
    assert runs.named(tmp_path, never.name, begun=True) == never
    shutil.rmtree(old.folder)
    for name in (None, "null"):
        with pytest.raises(DataMissingError, match=rf"no trial of {never.name} has run"):
            runs.named(tmp_path, name, begun=True)


def test_a_name_cannot_leave_the_results(null_search, null_arm, tmp_path) -> None:
    with pytest.raises(DataMissingError, match="tuneparts search rotated_digits"):
        runs.named(tmp_path, None)
    runs.create(tmp_path, null_search(null_arm("a")))
    for name in ("../elsewhere", "/etc", "null/../../x", "nothing"):
        with pytest.raises(ConfigError, match="is not a run"):
            runs.named(tmp_path, name)
    with pytest.raises(ConfigError, match="Did you mean `null`"):
        runs.named(tmp_path, "nul")


def test_the_card_is_read_and_parsed_once(null_search, null_arm, tmp_path) -> None:
    search = null_search(null_arm("a"))
    made = begun(runs.create(tmp_path, search, storage=None))
    assert made.search is search
    found = runs.named(tmp_path, None)
    first = found.search
    (found.folder / "run.json").unlink()
    assert found.search is first
    assert found.card["digest"] == search.digest
    assert found.storage == runs.default_storage(found.folder)


@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_a_damaged_card_is_refused(null_search, null_arm, tmp_path, content: str) -> None:
    run = runs.create(tmp_path, null_search(null_arm("a")))
    (run.folder / "run.json").write_text(content)
    with pytest.raises(DataMissingError, match=r"run\.json"):
        assert runs.Run(run.root, run.name).card


def test_results_that_cannot_be_written_are_an_error_that_names_them(
    null_search, null_arm, tmp_path
) -> None:
    (tmp_path / "results").write_text("a file")
    with pytest.raises(StorageError, match=r"no run can begin in .*results"):
        runs.create(tmp_path / "results", null_search(null_arm("a")))


def test_runs_that_begin_in_one_second_get_folders_of_their_own(
    tmp_path, null_search, null_arm
) -> None:
    search = null_search(null_arm("a"))
    with ThreadPoolExecutor(3) as pool:
        made = list(pool.map(lambda _: runs.create(tmp_path, search), range(3)))
    assert len({run.name for run in made}) == 3
    assert len(runs.listing(tmp_path)) == 3


def test_runs_that_share_a_storage_have_folders_of_their_own(tmp_path, null_search, null_arm):
    search = null_search(null_arm("fixed"))
    first = runs.create(tmp_path / "one", search, storage="s3://bucket/trials/")
    assert first.storage == f"s3://bucket/trials/{first.name}"
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    assert runs.named(tmp_path / "copy", first.name).storage == first.storage
