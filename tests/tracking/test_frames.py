import dataclasses
import math
import re
from pathlib import Path

import pandas as pd
import pytest

from tuneparts.core.errors import DataMissingError
from tuneparts.search.card import RunCard
from tuneparts.search.events import Event, Row, TrialEnded, TrialId, TrialStarted
from tuneparts.tracking import frames, store
from tuneparts.tracking.card import SearchCard

pytestmark = pytest.mark.mlflow


@pytest.fixture
def track(toy):
    """Tracks the events of a run; returns the id of its parent run."""

    def track(events: list[Event], name: str = "toy", run: str = "one") -> str:
        card = SearchCard(RunCard(name, scale="cpu"))
        one = dataclasses.replace(toy, folder=toy.folder.with_name(run), card=card)
        tracker = one.track(events)
        assert tracker.close() == []
        return str(tracker.parent_run_id)

    return track


def test_a_store_without_runs_names_the_first_step(uri: str, tmp_path: Path) -> None:
    missing = f"sqlite:///{tmp_path / 'none.db'}"
    for place in (uri, missing):
        with pytest.raises(DataMissingError, match="tuneparts search rotated_digits"):
            frames.runs(place)
    with pytest.raises(DataMissingError, match="no runs yet"):
        frames.steps(missing, "x")
    assert not (tmp_path / "none.db").exists()


def test_runs_come_newest_first_and_by_search(toy, track) -> None:
    first, second = track(toy.events, run="one"), track(toy.events, run="two")
    other = track([], "other", "three")
    assert frames.runs(toy.uri)["parent_run_id"].tolist() == [other, second, first]
    found = frames.runs(toy.uri, "toy")
    assert found.columns.tolist() == frames.RUN_COLUMNS
    assert found["run"].tolist() == ["two", "one"]
    with pytest.raises(DataMissingError, match=r"no runs of `third` yet.*search third"):
        frames.runs(toy.uri, "third")


def test_runs_of_others_in_the_same_store_are_left_alone(toy, track) -> None:
    client = store.client(toy.uri)
    experiment = client.create_experiment("toy", store._artifact_root(toy.uri))
    parent = track(toy.events)
    client.create_run(experiment)
    client.create_run(experiment, tags={"mlflow.parentRunId": parent})
    assert len(frames.runs(toy.uri)) == 1
    assert len(frames.trials(toy.uri, parent)) == 3


def test_a_search_without_trials_has_empty_frames(uri: str, track) -> None:
    parent = track([])
    trials, steps = frames.trials(uri, parent), frames.steps(uri, parent)
    assert (trials.columns.tolist(), len(trials)) == (frames.TRIAL_COLUMNS, 0)
    assert (steps.columns.tolist(), len(steps)) == (frames.STEP_COLUMNS, 0)


def test_the_last_value_is_the_one_at_the_last_step(uri: str, track) -> None:
    values = {10: 0.9, 30: 0.1, 20: 0.5}
    parent = track([Row(TrialId("a", 0, 0), s, {"val/nll": v}, 1.0) for s, v in values.items()])
    assert frames.trials(uri, parent)["val/nll"].tolist() == [0.1]
    assert frames.steps(uri, parent)["step"].tolist() == [10, 20, 30]


def test_order_is_numeric_by_arm_seed_and_index(uri: str, track) -> None:
    ids = [("b", 10, 0), ("b", 9, 0), ("a", 0, 100_000), ("a", 0, 20_000)]
    parent = track([Row(TrialId(*i), 1, {"val/nll": 0.0}, 1.0) for i in ids])
    for frame in (frames.trials(uri, parent), frames.steps(uri, parent)):
        got = list(zip(frame["arm"], frame["seed"], frame["index"], strict=True))
        assert got == sorted(ids)


def test_only_the_metrics_asked_for(toy, track) -> None:
    parent = track(toy.events)
    everything = frames.steps(toy.uri, parent)
    some = frames.steps(toy.uri, parent, ["val/accuracy", "val/ece"])
    wanted = everything[everything["metric"] == "val/accuracy"].reset_index(drop=True)
    pd.testing.assert_frame_equal(some, wanted)
    assert frames.steps(toy.uri, parent, []).empty


def test_more_runs_than_fit_on_a_page(uri: str, track, monkeypatch) -> None:
    monkeypatch.setattr(store, "_RUNS_PER_PAGE", 3)
    events: list[Event] = []
    for index in range(8):
        trial = TrialId("a", 0, index)
        events += [TrialStarted(trial, {"i": index}, 1.0), TrialEnded(trial, "finished", 2.0)]
    assert frames.trials(uri, track(events))["param.i"].tolist() == list(range(8))


def test_infinity_comes_back_and_a_deleted_trial_does_not(toy, track) -> None:
    """MLflow's databases hold the largest number in the place of infinity."""
    lost = Row(TrialId("random", 0, 0), 30, {"train/loss": math.inf}, 104.2)
    parent = track([*toy.events[:-1], lost, *toy.events[-1:]])
    trials = frames.trials(toy.uri, parent).set_index("trial")
    assert trials["train/loss"]["random/seed0/00000"] == math.inf
    assert frames.steps(toy.uri, parent)["value"].max() == math.inf
    assert not [name for name in frames.trials(toy.uri, parent, params=False) if "param." in name]
    store.client(toy.uri).delete_run(trials["run_id"]["asha/seed3/00000"])
    assert frames.trials(toy.uri, parent)["arm"].tolist() == ["random", "random"]


def test_nothing_private_of_mlflow_is_used() -> None:
    folder = Path(store.__file__).parent
    text = "\n".join(path.read_text("utf-8") for path in folder.glob("*.py"))
    assert not re.findall(r"mlflow\.store\b(?!\.db\.utils\")|mlflow\.tracking\._|ajax-api", text)


def test_files_and_single_trials_are_read_back(toy) -> None:
    tracker, uri = toy.track(toy.events), toy.uri
    assert tracker.close() == []
    parent = str(tracker.parent_run_id)
    assert store.artifact_text(uri, parent, "search.json") == '{"question": "which?"}'
    assert store.artifact_text(uri, parent, "report/report.html") is None
    assert store.artifact_text(uri, "0" * 32, "search.json") is None

    trials, steps = frames.trials(uri, parent), frames.steps(uri, parent)
    for _, expected in trials.iterrows():
        row, own = frames.trial(uri, expected["run_id"])
        assert row.pop("parent_run_id") == parent
        told = trials[trials["run_id"] == expected["run_id"]][list(row)].reset_index(drop=True)
        pd.testing.assert_frame_equal(pd.DataFrame([row]), told, check_dtype=False)
        assert own.equals(steps[steps["trial"] == expected["trial"]].reset_index(drop=True))
    with pytest.raises(DataMissingError, match="no trial of run id"):
        frames.trial(uri, parent)  # a search, not a trial
