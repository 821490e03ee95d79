import json

from tuneparts.journal import TrialId
from tuneparts.tracking import notes
from tuneparts.tracking.card import SearchCard


def test_a_search_that_runs_says_so_and_one_that_ended_answers(card: SearchCard) -> None:
    running = notes.of_search(card, "3", "abc", None)
    done = notes.of_search(card, "3", "abc", "random is ahead.")
    assert "tuneparts dashboard" in running
    assert "random is ahead." in done
    assert "(#/experiments/3/runs/abc/artifacts/report/report.html)" in done
    assert "artifacts/" not in running


def test_a_trial_points_to_the_report_of_its_search(card: SearchCard) -> None:
    text = notes.of_trial(card, "3", "abc", TrialId("random", 7, 2))
    assert "Trial 2 of arm `random`, seed 7" in text
    assert "(#/experiments/3/runs/abc/artifacts/report/report.html)" in text


def test_the_view_groups_trials_by_arm() -> None:
    state = json.loads(notes.view_state())
    assert state["groupBy"]["groupByKeys"] == [{"mode": "tag", "groupByData": "arm"}]
    assert state["searchFilter"] == "tags.`tuneparts.kind` = 'trial'"
