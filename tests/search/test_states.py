"""Which checkpoints stay when trials have ended."""

from pathlib import Path

import pytest

from tuneparts.core.errors import DataMissingError
from tuneparts.executors import Place, execute
from tuneparts.executors.setting import restore_learner
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.algorithms.halving import Asha
from tuneparts.search.algorithms.pbt import Pbt
from tuneparts.search.cleaning import Cleaner
from tuneparts.search.journal import Journal, records
from tuneparts.search.plan import Plan
from tuneparts.search.spec import Search


@pytest.fixture
def search(null_search, null_arm) -> Search:
    return null_search(
        null_arm("random", algorithm=RandomSearch(num_trials=5)),
        null_arm("asha", algorithm=Asha(num_trials=6, min_steps=2, reduction=2)),
        null_arm("pbt", algorithm=Pbt(population=4, num_rounds=4)),
        null_arm("broken", config={"fault": "raise"}),
        null_arm("again", hypers_from="random"),
    )


def with_state(folder: Path) -> set[str]:
    trials = folder / "trials"
    return {str(path.parent.relative_to(trials)) for path in trials.glob("*/*/*/r*.pt")}


def expected(search: Search, folder: Path) -> set[str]:
    """The selected trial of each arm, and those that failed."""
    journal = Journal(folder / "journal.jsonl")
    plan = Plan(search, journal)
    journal.close()
    selected = {str(plan.selected(arm.name, 0)) for arm in search.arms} - {"None"}
    ends = {str(trial): record.end.outcome for trial, record in journal.trials.items()}
    return selected | {trial for trial, outcome in ends.items() if outcome == "failed"}


@pytest.mark.parametrize("workers", [1, 2])
def test_the_selected_and_the_failed_keep_their_states(search, tmp_path, workers: int) -> None:
    execute(search, folder=tmp_path, place=Place("local", workers=workers))
    assert with_state(tmp_path) == expected(search, tmp_path)
    logs = list((tmp_path / "trials").glob("*/*/*/log/log.txt"))
    assert len(logs) == len(records(tmp_path / "journal.jsonl"))


def test_a_net_can_be_had_from_what_is_kept_and_the_others_say_why_not(search, tmp_path) -> None:
    execute(search, folder=tmp_path, place=Place("local", workers=1))
    trials = records(tmp_path / "journal.jsonl")
    kept = with_state(tmp_path)
    for trial, record in trials.items():
        if str(trial) in kept:
            last = record.last.step
            storage = str(tmp_path / "trials")
            assert restore_learner(search, storage, trial, record.config).steps == last
    lost = next(trial for trial in trials if str(trial) not in kept)
    with pytest.raises(DataMissingError, match="all do with `keep_checkpoints=True`"):
        restore_learner(search, str(tmp_path / "trials"), lost, trials[lost].config)


def test_all_states_are_kept_on_request(search, tmp_path) -> None:
    every = search.replaced({"keep_checkpoints": True})
    assert every.digest == search.digest
    execute(every, folder=tmp_path, place=Place("local", workers=1))
    assert len(with_state(tmp_path)) == len(records(tmp_path / "journal.jsonl"))


def test_what_a_crash_left_goes_when_the_run_is_opened_again(search, tmp_path) -> None:
    execute(search.replaced({"keep_checkpoints": True}), folder=tmp_path, place=Place("local"))
    execute(search, folder=tmp_path, place=Place("local", workers=1))
    assert with_state(tmp_path) == expected(search, tmp_path)


def test_a_donor_is_kept_until_it_has_been_copied(null_search, null_arm, tmp_path) -> None:
    """The members of the last round may end before those that copy them have begun."""
    search = null_search(null_arm("pbt", algorithm=Pbt(population=4, num_rounds=2)))
    gone = []
    plan = Plan(search, Journal(tmp_path / "journal.jsonl"), forget=gone.append)
    waiting = []
    while (segment := plan.next()) is not None:
        if segment.donor is not None:
            waiting.append(segment)
            continue
        finish(plan, segment)
    donors = {segment.donor for segment in waiting}
    assert donors
    assert not donors & set(gone)
    for segment in waiting:
        finish(plan, segment)
    assert plan.done
    assert len(gone) == len(set(gone)) == 3
    assert plan.selected("pbt", 0) not in gone
    plan.journal.close()


def finish(plan: Plan, segment) -> None:
    row = {"val/accuracy": segment.config["x"], "cost/steps": segment.until}
    plan.report(segment, [row])
    plan.complete(segment, finished=segment.until == 8)
    plan.journal.sync()


def test_ends_are_on_the_disk_before_states_are_removed(null_search, null_arm, tmp_path) -> None:
    search = null_search(null_arm("random", algorithm=RandomSearch(num_trials=6)))
    journal = Journal(tmp_path / "journal.jsonl")
    was_synced = []
    plan = Plan(search, journal, forget=lambda _: was_synced.append(journal.is_synced))
    while (segment := plan.next()) is not None:
        plan.report(segment, [{"val/accuracy": segment.config["x"], "cost/steps": 8}])
        plan.complete(segment, finished=True)
    assert was_synced == [True] * 5
    journal.close()


def test_a_storage_that_fails_keeps_nobody_waiting(tmp_path, caplog, monkeypatch) -> None:
    from tuneparts.search.checkpoints import CheckpointStore
    from tuneparts.search.events import TrialId

    def away(*_: object) -> None:
        raise OSError("away")

    monkeypatch.setattr(CheckpointStore, "remove", away)
    cleaner = Cleaner(str(tmp_path))
    cleaner.forget(TrialId("a", 0, 0))
    cleaner.close()
    assert "the checkpoints of a/seed0/00000 could not be removed: away" in caplog.text
