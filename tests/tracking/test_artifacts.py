from collections.abc import Callable

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from tuneparts.errors import DataMissingError
from tuneparts.journal import Event
from tuneparts.tracking import artifacts, frames
from tuneparts.tracking.tracker import Tracker

pytestmark = pytest.mark.mlflow


def test_files_and_single_trials_are_read_back(
    uri: str, make_tracker: Callable[[], Tracker], events: list[Event]
) -> None:
    tracker = make_tracker()
    for event in events:
        tracker.on_event(event)
    assert tracker.close() == []
    parent = str(tracker.parent_run_id)
    assert artifacts.text(uri, parent, "search.json") == '{"question": "which?"}'
    assert artifacts.text(uri, parent, "report/report.html") is None
    assert artifacts.text(uri, "0" * 32, "search.json") is None

    trials, steps = frames.trials(uri, parent), frames.steps(uri, parent)
    for _, expected in trials.iterrows():
        row, own = frames.trial(uri, expected["run_id"])
        assert row.pop("parent_run_id") == parent
        told = trials[trials["run_id"] == expected["run_id"]][list(row)].reset_index(drop=True)
        assert_frame_equal(pd.DataFrame([row]), told, check_dtype=False)
        assert own.equals(steps[steps["trial"] == expected["trial"]].reset_index(drop=True))
    with pytest.raises(DataMissingError, match="none of id"):
        frames.trial(uri, parent)  # a search, not a trial
