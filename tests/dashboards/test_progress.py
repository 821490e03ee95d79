from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from dashboards.views import progress
from tests.results.conftest import make_frames, make_metadata
from tuneparts.search.card import ArmCard, RunCard

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_finished_search_is_whole_but_for_what_is_missing():
    (trials, _), metadata = make_frames(), make_metadata()
    arms = progress.arms(metadata, trials).set_index("arm")
    assert arms["fraction"].to_dict() == {
        "none": 1.0, "random": 23 / 24, "partitioned": 1.0, "retrained": 1.0,
    }  # fmt: skip
    assert arms["failed"].to_dict() == {"none": 0, "random": 1, "partitioned": 0, "retrained": 0}
    own = trials[trials["arm"] == "random"]
    assert arms["best"]["random"] == own["val/accuracy"].max()
    assert pd.isna(arms["best"]["none"])
    whole = progress.fraction(metadata, arms.reset_index())
    assert whole == pytest.approx((3 + 23 + 3 + 3) / 33)


def test_open_trials_count_by_their_steps():
    (trials, _), metadata = make_frames(), make_metadata()
    running = trials[trials["arm"] == "none"].assign(outcome="running", **{"cost/steps": 100.0})
    arms = progress.arms(metadata, running).set_index("arm")
    assert arms["fraction"]["none"] == pytest.approx(100 / 400)
    assert arms["open"]["none"] == 3
    assert arms["fraction"]["random"] == 0


@pytest.mark.parametrize(("budget", "part"), [(0, 1 / 4), (20, (1 + 0.5 + 1) / 4)])
def test_without_a_budget_only_ended_trials_count(budget, part):
    metadata = RunCard("s", "q", (ArmCard("a", "m", 4, (0,), steps=budget),))
    trials = pd.DataFrame({"arm": "a", "outcome": ["finished", "running", "running"]})
    trials["cost/steps"] = [20.0, 10.0, 50.0]
    assert progress.arms(metadata, trials)["fraction"].tolist() == [part]


@settings(max_examples=60)
@given(some.lists(some.tuples(some.integers(0, 50), some.integers(0, 20)), max_size=8))
def test_time_spent_is_the_union_of_all_spans(spans):
    frame = pd.DataFrame(
        {
            "start": [START + timedelta(seconds=a) for a, _ in spans],
            "end": [START + timedelta(seconds=a + b) for a, b in spans],
        }
    )
    seconds = {second for a, b in spans for second in range(a, a + b)}
    assert progress.seconds_spent(frame, START) == len(seconds)


def test_what_runs_still_lasts_until_now():
    frame = pd.DataFrame({"start": [START], "end": [None]})
    assert progress.seconds_spent(frame, START + timedelta(seconds=7)) == 7
    assert progress.seconds_left(0.25, 7.0) == pytest.approx(21.0)
    assert progress.seconds_left(0.0, 7.0) is None
