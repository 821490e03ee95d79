"""`sync` brings a store up to date from the run folder alone; a second time changes nothing."""

import dataclasses
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tuneparts.search import journal
from tuneparts.search.card import ArmCard
from tuneparts.search.events import Event, TrialId, TrialStarted
from tuneparts.tracking import record, store
from tuneparts.tracking.card import NOTE_TAG, DataFacts, SearchCard
from tuneparts.tracking.tracker import Tracker, sync

pytestmark = pytest.mark.mlflow
Feed = Callable[[Tracker, Sequence[Event]], Tracker]
BEST = TrialId("random", 0, 0)


@pytest.fixture
def card(card: SearchCard) -> SearchCard:
    data = DataFacts("digits", lambda: "abc123", '{"name": "digits"}')
    arms = (ArmCard("random", "standard", 1, (0,)),)
    run = dataclasses.replace(card.run, question="Which?", arms=arms)
    return dataclasses.replace(card, run=run, data=data)


@pytest.fixture
def other(template_store: Path, tmp_path: Path) -> str:
    """Another store, empty."""
    path = tmp_path / "other" / "mlflow.db"
    path.parent.mkdir()
    path.write_bytes(template_store.read_bytes())
    return f"sqlite:///{path}"


def content(uri: str) -> dict[str, Any]:
    """All that a store says of its runs, without what MLflow makes up: ids and places."""
    client = store.client(uri)
    (experiment,) = [one for one in client.search_experiments() if one.name == "toy"]
    found = store.search(client, [experiment.experiment_id], "")
    names = {run.info.run_id: run.info.run_name for run in found}
    told = {}
    for run in found:
        tags = {key: text for key, text in run.data.tags.items() if key != "mlflow.parentRunId"}
        for run_id, name in names.items():
            tags = {key: text.replace(run_id, name) for key, text in tags.items()}
        tags = {
            key: text.replace(f"experiments/{experiment.experiment_id}/", "experiments/N/")
            for key, text in tags.items()
        }
        history = {
            name: [
                (point.step, point.timestamp, repr(point.value))
                for point in client.get_metric_history(run.info.run_id, name)
            ]
            for name in run.data.metrics
        }
        told[names[run.info.run_id]] = {
            "status": run.info.status,
            "times": (run.info.start_time, run.info.end_time),
            "parent": names.get(run.data.tags.get("mlflow.parentRunId", "")),
            "tags": tags,
            "params": run.data.params,
            "history": history,
            "data": [one.dataset.digest for one in run.inputs.dataset_inputs],
            "artifacts": sorted(one.path for one in client.list_artifacts(run.info.run_id)),
        }
    assert len(told) == len(found)
    return told


def rows(uri: str) -> dict[str, int]:
    """How many rows each table of a SQLite store has."""
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as connection:
        tables = ("runs", "metrics", "latest_metrics", "params", "tags", "inputs", "datasets")
        return {
            table: connection.execute(f"select count(*) from {table}").fetchone()[0]
            for table in tables
        }


def publish(tracker: Tracker, folder: Path) -> None:
    """What the driver does when the search is over."""
    (folder / "report").mkdir()
    (folder / "report" / "report.html").write_text("<html>")
    tracker.log_artifact(folder / "report")
    tracker.describe("random wins.")
    tracker.tag_trial(BEST, {"selected": "yes"})


def test_an_empty_store_gets_the_same_runs(
    uri: str, other: str, folder: Path, card: SearchCard, events: list[Event], feed: Feed
) -> None:
    tracker = feed(Tracker(uri, folder=folder, search=card, interval=0.01), events)
    publish(tracker, folder)
    assert tracker.close() == []
    done = sync(folder, other, card)
    assert (done.runs, done.points, done.is_complete, done.problems) == (4, 6, True, [])
    told = content(other)
    assert told == content(uri)
    assert told[folder.name]["artifacts"] == ["metadata.json", "report", "search.json"]
    assert "random wins." in told[folder.name]["tags"][NOTE_TAG]
    assert told[str(BEST)]["tags"]["selected"] == "yes"


def test_a_second_time_changes_nothing(
    uri: str, other: str, folder: Path, card: SearchCard, events: list[Event], feed: Feed
) -> None:
    tracker = feed(Tracker(uri, folder=folder, search=card, interval=0.01), events)
    publish(tracker, folder)
    tracker.close()
    for where in (uri, other):
        sync(folder, where, card)
        before = content(where), rows(where)
        done = sync(folder, where, card)
        assert (done.runs, done.points, done.problems) == (0, 0, [])
        assert (content(where), rows(where)) == before
    # Also after the folder has been told of another store in between.
    assert sync(folder, uri, card).points == 0


@pytest.mark.parametrize("stop", range(0, 13, 3))
def test_an_interrupted_run_ends_as_killed_at_its_last_event(
    uri: str, folder: Path, card: SearchCard, events: list[Event], feed: Feed, stop: int
) -> None:
    """The driver got no further than this, and never reached a store."""
    folder.mkdir()
    written = journal.Journal(folder / "journal.jsonl")
    for event in events[:stop]:
        written.append(event)
    written.close()
    for _ in range(2):
        done = sync(folder, uri, card)
        assert done.problems == []
    told = content(uri)
    assert told[folder.name]["status"] == "KILLED"
    times = [event.time for event in events[:stop]]
    if times:
        assert told[folder.name]["times"] == (1000 * times[0], 1000 * times[-1])
    begun = {event.trial for event in events[:stop] if not isinstance(event, TrialStarted)}
    assert set(told) == {folder.name, *map(str, begun)}

    # Whoever resumes it goes on with the same runs.
    assert feed(Tracker(uri, folder=folder, search=card), events).close() == []
    told = content(uri)
    assert len(told) == 4
    assert {run["status"] for run in told.values()} == {"FINISHED", "FAILED"}


def test_what_was_asked_for_while_the_store_was_away_is_sent_later(
    uri: str, unused_port: int, folder: Path, card: SearchCard, events: list[Event], feed: Feed
) -> None:
    away = Tracker(f"http://127.0.0.1:{unused_port}", folder=folder, search=card, interval=0.01)
    feed(away, events)
    publish(away, folder)
    (problem,) = away.close("FINISHED", timeout=0.3)
    assert f"tuneparts sync {folder.parent.name}/{folder.name}" in problem
    done = sync(folder, uri, card)
    assert (done.runs, done.points, done.problems) == (4, 6, [])
    told = content(uri)
    assert told[folder.name]["status"] == "FINISHED"
    assert "random wins." in told[folder.name]["tags"][NOTE_TAG]
    assert "report" in told[folder.name]["artifacts"]
    assert told[str(BEST)]["tags"]["selected"] == "yes"


def test_a_store_that_stays_away_is_said(
    unused_port: int, folder: Path, card: SearchCard, events: list[Event], feed: Feed
) -> None:
    away = f"http://127.0.0.1:{unused_port}"
    feed(Tracker(away, folder=folder, search=card, interval=0.01), events).close(timeout=0.2)
    done = sync(folder, away, card, timeout=0.2)
    assert not done.is_complete
    assert done.parent_run_id is None
    assert "the journal has everything" in done.problems[0]


def test_trials_deleted_by_hand_come_back(
    uri: str, folder: Path, card: SearchCard, events: list[Event], feed: Feed
) -> None:
    feed(Tracker(uri, folder=folder, search=card, interval=0.01), events).close()
    before = content(uri)
    known = record.load(folder)
    assert known is not None
    store.client(uri).delete_run(known.trials[BEST])
    assert sync(folder, uri, card).runs == 1
    assert content(uri) == before


def test_a_resumed_tracker_sends_the_journal_from_where_it_was(
    uri: str,
    folder: Path,
    card: SearchCard,
    events: list[Event],
    feed: Feed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feed(Tracker(uri, folder=folder, search=card, interval=0.01), events[:9]).close("KILLED")
    from mlflow import MlflowClient

    sent: list[Any] = []
    log_batch = MlflowClient.log_batch

    def spy(client: MlflowClient, run_id: str, metrics: Sequence[Any] = (), *more: Any) -> None:
        sent.extend(metrics)
        log_batch(client, run_id, metrics, *more)

    monkeypatch.setattr(MlflowClient, "log_batch", spy)
    resumed = Tracker(uri, folder=folder, search=card, interval=0.01)
    assert resumed.flush()
    assert sent == []
    assert resumed.close("KILLED") == []

    again = TrialStarted(BEST, {"lr": 0.2}, 102.7)  # a perturbed config is no new param
    monkeypatch.undo()
    tracker = Tracker(uri, folder=folder, search=card, interval=0.01)
    assert feed(tracker, [again, *events[9:]]).close() == []
    told = content(uri)
    assert told[str(BEST)]["params"]["lr"] == "0.1"
    assert [step for step, *_ in told[str(BEST)]["history"]["train/loss"]] == [10, 20]
    assert {run["status"] for run in told.values()} == {"FINISHED", "FAILED"}


def test_params_are_sent_where_a_process_died_between_a_run_and_its_params(
    uri: str, other: str, folder: Path, card: SearchCard, events: list[Event], feed: Feed
) -> None:
    """The config of a trial is read when it is queued, its run is made when its work begins."""
    feed(Tracker(uri, folder=folder, search=card, interval=0.01), events[:3]).close("KILLED")
    remembered = {path: path.read_bytes() for path in folder.glob("*.json")}
    feed(Tracker(uri, folder=folder, search=card, interval=0.01), events[3:5]).close("KILLED")
    for path, text in remembered.items():  # as if it had died before it could remember more
        path.write_bytes(text)
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as connection:
        connection.execute("delete from params where key like 'net.%' or key = 'lr'")
    assert feed(Tracker(uri, folder=folder, search=card), events[5:]).close() == []
    sync(folder, other, card)
    told, wanted = content(uri), content(other)
    assert {name: run["params"] for name, run in told.items()} == {
        name: run["params"] for name, run in wanted.items()
    }
    assert told[str(BEST)]["params"]["lr"] == "0.1"


def test_a_new_store_in_the_place_of_the_old_one_gets_everything(
    uri: str, folder: Path, card: SearchCard, events: list[Event], feed: Feed, template_store: Path
) -> None:
    """The remembered position is of no use to a store that is empty."""
    feed(Tracker(uri, folder=folder, search=card, interval=0.01), events[:9]).close("KILLED")
    Path(uri.removeprefix("sqlite:///")).write_bytes(template_store.read_bytes())
    assert feed(Tracker(uri, folder=folder, search=card), events).close() == []
    told = content(uri)
    assert len(told) == 4
    assert [step for step, *_ in told[str(BEST)]["history"]["train/loss"]] == [10, 20]


def test_a_line_that_is_no_event_is_a_problem_and_the_rest_is_sent(
    uri: str, folder: Path, card: SearchCard, events: list[Event], feed: Feed
) -> None:
    tracker = feed(Tracker(uri, folder=folder, search=card, interval=0.01), events)
    tracker.close()
    path = folder / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b"{torn\n", b"\xff\xfe\n", *lines[3:], b'{"kind": "ro']))
    other = f"{uri.removesuffix('mlflow.db')}new.db"
    Path(other.removeprefix("sqlite:///")).write_bytes(
        Path(uri.removeprefix("sqlite:///")).read_bytes()
    )
    (problem,) = sync(folder, other, card).problems
    assert problem.startswith("event not understood (2)")


def test_long_journals_are_read_in_pieces(
    uri: str,
    other: str,
    folder: Path,
    card: SearchCard,
    events: list[Event],
    feed: Feed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feed(Tracker(uri, folder=folder, search=card, interval=0.01), events).close()
    monkeypatch.setattr("tuneparts.tracking.replay._CHUNK", 150)
    progress: list[int] = []
    assert sync(folder, other, card, on_progress=progress.append).points == 6
    assert progress == sorted(progress)
    assert progress[-1] == (folder / "journal.jsonl").stat().st_size
    assert len(set(progress)) > 5
    assert content(other) == content(uri)
