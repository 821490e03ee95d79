"""A trial has an MLflow run from the moment that a worker takes it up, and not before."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tuneparts.core.schema import lookup
from tuneparts.search.card import RunCard
from tuneparts.search.events import Event, Row, TrialEnded, TrialId, TrialRunning, TrialStarted
from tuneparts.tracking import frames, store
from tuneparts.tracking.card import SearchCard
from tuneparts.tracking.tracker import Tracker, sync

pytestmark = pytest.mark.mlflow
Feed = Callable[[Tracker, Sequence[Event]], Tracker]
FIRST, SECOND = TrialId("random", 0, 0), TrialId("random", 0, 1)
QUEUED: list[Event] = [
    TrialStarted(FIRST, {"lr": 0.1}, 10.0),
    TrialStarted(SECOND, {"lr": 0.2}, 10.0),
    TrialRunning(FIRST, 20.0),
    Row(FIRST, 5, {"val/accuracy": 0.5}, 25.0),
]
REST: list[Event] = [
    TrialEnded(FIRST, "finished", 30.0),
    TrialRunning(SECOND, 30.0),
    Row(SECOND, 5, {"val/accuracy": 0.75}, 35.0),
    TrialEnded(SECOND, "finished", 40.0),
]


def times(uri: str, parent: str | None) -> list[tuple[float, float]]:
    found = frames.trials(uri, str(parent))
    pairs = zip(found["start"], found["end"], strict=True)
    return [(start.timestamp(), end.timestamp()) for start, end in pairs]


def test_a_queued_trial_has_no_run_and_its_start_is_that_of_its_work(
    make_tracker: Callable[[], Tracker], feed: Feed, uri: str
) -> None:
    tracker = feed(make_tracker(), QUEUED)
    assert tracker.flush()
    assert frames.trials(uri, str(tracker.parent_run_id))["trial"].tolist() == [str(FIRST)]
    (run,) = frames.runs(uri).to_dict("records")
    assert (run["running"], run["queued"]) == (1, 1)
    assert feed(tracker, REST).close() == []
    assert times(uri, tracker.parent_run_id) == [(20.0, 30.0), (30.0, 40.0)]
    (run,) = frames.runs(uri).to_dict("records")
    assert (run["finished"], run["queued"]) == (2, 0)


def test_a_queue_that_outlives_its_driver_keeps_its_configs(
    make_tracker: Callable[[], Tracker], feed: Feed, uri: str, folder: Path, card: SearchCard
) -> None:
    assert feed(make_tracker(), QUEUED).close("KILLED") == []
    (run,) = frames.runs(uri).to_dict("records")
    assert (run["killed"], run["queued"]) == (1, 1)
    tracker = feed(make_tracker(), REST)
    assert tracker.close() == []
    found = frames.trials(uri, str(tracker.parent_run_id))
    assert found["param.lr"].tolist() == [0.1, 0.2]
    assert found["status"].tolist() == ["FINISHED", "FINISHED"]
    assert times(uri, tracker.parent_run_id) == [(20.0, 30.0), (30.0, 40.0)]
    assert sync(folder, uri, card).runs == 0


def test_a_journal_of_an_older_version_starts_when_it_was_queued(
    make_tracker: Callable[[], Tracker], feed: Feed, uri: str
) -> None:
    old = [event for event in [*QUEUED, *REST] if not isinstance(event, TrialRunning)]
    tracker = feed(make_tracker(), old)
    assert tracker.close() == []
    assert times(uri, tracker.parent_run_id) == [(10.0, 30.0), (10.0, 40.0)]


def test_the_parent_ranks_says_who_and_carries_params(
    feed: Feed, uri: str, folder: Path, card: SearchCard
) -> None:
    card = dataclasses.replace(
        card,
        run=dataclasses.replace(
            card.run, commit="0123456789ab-dirty", command="tuneparts search toy"
        ),
        metric=lookup("val/accuracy"),
        params={"arms": ["random"], "arm": {f"a{i}": {"method": "x"} for i in range(150)}},
        user="ada",
    )
    tracker = Tracker(uri, folder=folder, search=card, interval=0.01)
    assert feed(tracker, [*QUEUED, *REST]).close() == []
    client = store.client(uri)
    parent = client.get_run(tracker.parent_run_id)
    assert parent.data.metrics["best/val/accuracy"] == 0.75
    assert parent.data.metrics["arm/random/val/accuracy"] == 0.75
    assert parent.data.metrics["trials/finished"] == 2.0
    history = client.get_metric_history(tracker.parent_run_id, "best/val/accuracy")
    assert [(point.step, point.timestamp, point.value) for point in history] == [
        (1, 30_000, 0.5),
        (2, 40_000, 0.75),
    ]
    assert parent.data.params["arms"] == '["random"]'
    assert parent.data.params["arm.a149.method"] == "x"
    child = client.get_run(tracker.run_id(FIRST))
    for run in (parent, child):
        shown = {name: run.data.tags[f"mlflow.{name}"] for name in ("user", "source.name")}
        assert shown == {"user": "ada", "source.name": "tuneparts search toy"}
        assert run.data.tags["mlflow.source.git.commit"] == "0123456789ab-dirty"
        assert run.data.tags["mlflow.source.type"] == "LOCAL"
    ranked = client.search_runs(
        [parent.info.experiment_id],
        "params.arms = '[\"random\"]' and metrics.`best/val/accuracy` > 0.7",
        order_by=["metrics.`best/val/accuracy` DESC"],
    )
    assert [run.info.run_id for run in ranked] == [tracker.parent_run_id]


def test_a_version_is_no_commit() -> None:
    assert SearchCard(RunCard("toy", commit="v0.1.0")).origin_tags() == {}


def test_a_failed_trial_has_its_log_and_a_log_that_cannot_be_read_harms_nobody(
    feed: Feed, uri: str, folder: Path, card: SearchCard, monkeypatch: Any
) -> None:
    monkeypatch.setenv("TUNEPARTS_TEST_PASSWORD", "hunter2hunter2")

    def read_log(trial: TrialId) -> str:
        if trial == SECOND:
            raise OSError("the storage is away")
        return "10:00:00 Traceback: token=hunter2hunter2"

    events: list[Event] = [
        *QUEUED,
        TrialEnded(FIRST, "failed", 30.0, "no"),
        TrialEnded(SECOND, "failed", 31.0, "no"),
    ]
    tracker = Tracker(uri, folder=folder, search=card, read_log=read_log, interval=0.01)
    (problem,) = feed(tracker, events).close()
    assert "the storage is away" in problem
    text = store.artifact_text(uri, str(tracker.run_id(FIRST)), "log.txt")
    assert text is not None
    assert text.startswith("10:00:00 Traceback")
    assert "hunter2" not in text
    assert frames.trials(uri, str(tracker.parent_run_id))["outcome"].tolist() == ["failed"] * 2
