import math
from pathlib import Path

import pandas as pd
import pytest

from tuneparts.core import schema
from tuneparts.search import frames
from tuneparts.search.events import Event, Row, TrialEnded, TrialId, TrialRunning, TrialStarted
from tuneparts.search.journal import Journal

FIRST, SECOND = TrialId("random", 0, 0), TrialId("random", 0, 1)
CONFIG = {"method": "standard", "net": {"name": "mlp", "widths": [8, 8]}, "mask": None, "empty": {}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def write(path: Path, *events: Event) -> None:
    journal = Journal(path)
    for event in events:
        journal.append(event)
    journal.close()


def some_events() -> list[Event]:
    return [
        TrialStarted(SECOND, CONFIG, 1.0),
        TrialStarted(FIRST, CONFIG, 1.5),
        Row(FIRST, 20, {"val/nll": 0.5, "cost/steps": 20.0}, 2.0),
        Row(SECOND, 10, {"val/nll": math.inf, "cost/steps": 10.0}, 2.25),
        Row(FIRST, 10, {"val/nll": 0.75, "hyper/rotation": 1.0, "cost/steps": 10.0}, 2.5),
        Row(FIRST, 30, {"test/nll": 0.25, "cost/steps": 30.0}, 3.0),
        TrialEnded(FIRST, "finished", 3.125),
    ]


def test_a_run_that_has_not_written_anything_has_empty_frames(path: Path) -> None:
    assert frames.trials(path).columns.tolist() == frames.TRIAL_COLUMNS
    assert frames.steps(path).columns.tolist() == frames.STEP_COLUMNS
    assert frames.trials(path).empty
    assert frames.steps(path).empty


def test_trials_are_sorted_and_have_the_newest_value_of_each_metric(path: Path) -> None:
    write(path, *some_events())
    found = frames.trials(path, {SECOND: "abc"})
    assert found["trial"].tolist() == [str(FIRST), str(SECOND)]
    assert found["run_id"].tolist() == ["", "abc"]
    assert found["outcome"].tolist() == ["finished", frames.RUNNING]
    assert found.loc[0, ["val/nll", "hyper/rotation", "test/nll"]].tolist() == [0.5, 1.0, 0.25]
    assert found.loc[0, "cost/steps"] == 30
    assert found.loc[1, "val/nll"] == math.inf
    assert math.isnan(found.loc[1, "test/nll"])
    assert found["start"].tolist() == [pd.Timestamp(t, unit="s", tz="UTC") for t in (1.5, 1.0)]
    assert found.loc[0, "end"] == pd.Timestamp(3.125, unit="s", tz="UTC")
    assert pd.isna(found.loc[1, "end"])


def test_configs_are_columns_by_the_path_of_their_leaves(path: Path) -> None:
    write(path, *some_events())
    found = frames.trials(path)
    assert found.loc[0, "param.net.name"] == "mlp"
    assert found.loc[0, "param.net.widths"] == [8, 8]
    assert found.loc[0, "param.mask"] is None
    assert found.loc[0, "param.empty"] == {}


def test_steps_are_those_of_a_plain_loop_over_the_rows(path: Path) -> None:
    write(path, *some_events())
    expected = sorted(
        (str(event.trial), name, event.step, value)
        for event in some_events()
        if isinstance(event, Row)
        for name, value in event.metrics.items()
    )
    found = frames.steps(path)
    assert list(
        zip(found["trial"], found["metric"], found["step"], found["value"], strict=True)
    ) == (expected)
    some = frames.steps(path, ["val/nll"])
    pd.testing.assert_frame_equal(some, found[found["metric"] == "val/nll"].reset_index(drop=True))


def test_metrics_outside_the_schema_are_left_out(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "METRICS", dict(schema.METRICS))
    write(
        path,
        TrialStarted(FIRST, CONFIG, 0.0),
        Row(FIRST, 1, {"val/nll": 1.0, "odd/number": 2.0}, 1.0),
    )
    assert "odd/number" not in frames.trials(path)
    assert frames.steps(path)["metric"].tolist() == ["val/nll"]
    schema.declare(schema.Metric("odd/number", schema.Direction.NONE, "", 1, "declared later"))
    assert frames.trials(path)["odd/number"].tolist() == [2.0]
    assert frames.steps(path)["metric"].tolist() == ["odd/number", "val/nll"]


def test_a_torn_last_line_is_ignored_and_left_in_place(path: Path) -> None:
    write(path, *some_events())
    whole = frames.steps(path)
    with path.open("ab") as file:
        file.write(b'{"kind": "row", "trial": "rand')
    before = path.read_bytes()
    pd.testing.assert_frame_equal(frames.steps(path), whole)
    assert path.read_bytes() == before


def test_secrets_in_configs_and_errors_are_masked(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_PASSWORD", "hunter2hunter2")
    write(
        path,
        TrialStarted(FIRST, {"place": "s3://hunter2hunter2/x", "token": "abc"}, 0.0),
        TrialEnded(FIRST, "failed", 1.0, "cannot open hunter2hunter2"),
    )
    text = frames.trials(path).to_csv()
    assert "hunter2hunter2" not in text
    assert "abc" not in text


def test_a_trial_is_queued_until_a_worker_takes_it_up(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, TrialStarted(FIRST, CONFIG, 1.0), TrialStarted(SECOND, CONFIG, 1.0))
    assert frames.trials(path)["outcome"].tolist() == [frames.QUEUED] * 2
    write(path, TrialRunning(FIRST, 5.0))
    found = frames.trials(path)
    assert found["outcome"].tolist() == [frames.RUNNING, frames.QUEUED]
    assert found["start"][0].timestamp() == 5.0
    assert found["start"].isna().tolist() == [False, True]
