from collections.abc import Callable

import pytest

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
    for expected in trials.to_dict("records"):
        row, own = frames.trial(uri, expected["run_id"])
        assert str({k: expected[k] for k in row}) == str(row)  # as text NaN equals itself
        assert own.equals(steps[steps["trial"] == expected["trial"]].reset_index(drop=True))
    with pytest.raises(DataMissingError, match="none of id"):
        frames.trial(uri, parent)  # a search, not a trial
