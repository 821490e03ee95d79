"""`sync` brings a store up to date from the run folder alone; a second time changes nothing."""

import dataclasses
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tuneparts.search.card import ArmCard
from tuneparts.search.events import (
    Row,
    TrialEnded,
    TrialId,
    TrialRetried,
    TrialStarted,
    TrialVoided,
)
from tuneparts.tracking import store
from tuneparts.tracking.card import NOTE_TAG, DataFacts
from tuneparts.tracking.tracker import Tracker

pytestmark = pytest.mark.mlflow
BEST = TrialId("random", 0, 0)


@pytest.fixture
def toy(toy):
    data = DataFacts("digits", lambda: "abc123", '{"name": "digits"}')
    arms = (ArmCard("random", "standard", 1, (0,)),)
    run = dataclasses.replace(toy.card.run, question="Which?", arms=arms)
    toy.card = dataclasses.replace(toy.card, run=run, data=data)
    return toy


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
    found = store._search(client, [experiment.experiment_id], "")
    names = {run.info.run_id: run.info.run_name for run in found}
    told = {}
    for run in found:
        tags = {key: text for key, text in run.data.tags.items() if key != "mlflow.parentRunId"}
        made_up = {**names, f"experiments/{experiment.experiment_id}/": "experiments/N/"}
        for text, name in made_up.items():
            tags = {key: value.replace(text, name) for key, value in tags.items()}
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


def test_an_empty_store_gets_the_same_runs(toy, other: str) -> None:
    tracker = toy.track(toy.events)
    publish(tracker, toy.folder)
    assert tracker.close() == []
    done = toy.sync(other)
    assert (done.runs, done.points, done.is_complete, done.problems) == (4, 6, True, [])
    told = content(other)
    assert told == content(toy.uri)
    assert told[toy.folder.name]["artifacts"] == ["metadata.json", "report", "search.json"]
    assert "random wins." in told[toy.folder.name]["tags"][NOTE_TAG]
    assert told[str(BEST)]["tags"]["selected"] == "yes"


def test_a_second_time_changes_nothing(toy, other: str) -> None:
    tracker = toy.track(toy.events)
    publish(tracker, toy.folder)
    tracker.close()
    for where in (toy.uri, other):
        toy.sync(where)
        before = content(where), rows(where)
        done = toy.sync(where)
        assert (done.runs, done.points, done.problems) == (0, 0, [])
        assert (content(where), rows(where)) == before
    assert toy.sync().points == 0  # also after the folder was sent to another store in between


@pytest.mark.parametrize("stop", range(0, 13, 3))
def test_an_interrupted_run_ends_as_killed_at_its_last_event(toy, stop: int) -> None:
    """The driver got no further than this, and never reached a store."""
    some = toy.events[:stop]
    toy.folder.mkdir()
    toy.write(some)
    for _ in range(2):
        assert toy.sync().problems == []
    told = content(toy.uri)
    assert told[toy.folder.name]["status"] == "KILLED"
    if some:
        assert told[toy.folder.name]["times"] == (1000 * some[0].time, 1000 * some[-1].time)
    begun = {event.trial for event in some if not isinstance(event, TrialStarted)}
    assert set(told) == {toy.folder.name, *map(str, begun)}

    assert toy.track(toy.events).close() == []  # resumed, with the same runs
    told = content(toy.uri)
    assert len(told) == 4
    assert {run["status"] for run in told.values()} == {"FINISHED", "FAILED"}


def test_what_was_asked_for_while_the_store_was_away_is_sent_later(toy, unused_port: int) -> None:
    away = toy.track(toy.events, f"http://127.0.0.1:{unused_port}")
    publish(away, toy.folder)
    (problem,) = away.close("FINISHED", timeout=0.3)
    assert f"tuneparts sync {toy.folder.parent.name}/{toy.folder.name}" in problem
    done = toy.sync()
    assert (done.runs, done.points, done.problems) == (4, 6, [])
    told = content(toy.uri)
    assert told[toy.folder.name]["status"] == "FINISHED"
    assert "random wins." in told[toy.folder.name]["tags"][NOTE_TAG]
    assert "report" in told[toy.folder.name]["artifacts"]
    assert told[str(BEST)]["tags"]["selected"] == "yes"


def test_a_store_that_stays_away_is_said(toy, unused_port: int) -> None:
    away = f"http://127.0.0.1:{unused_port}"
    toy.track(toy.events, away).close(timeout=0.2)
    done = toy.sync(away, timeout=0.2)
    assert not done.is_complete
    assert done.parent_run_id is None
    assert "the journal has everything" in done.problems[0]


def test_trials_deleted_by_hand_come_back(toy) -> None:
    toy.track(toy.events).close()
    before = content(toy.uri)
    store.client(toy.uri).delete_run(toy.record.trials[BEST])
    assert toy.sync().runs == 1
    assert content(toy.uri) == before


def test_a_resumed_tracker_sends_the_journal_from_where_it_was(toy, monkeypatch) -> None:
    from mlflow import MlflowClient

    toy.track(toy.events[:9]).close("KILLED")
    sent: list[Any] = []
    log_batch = MlflowClient.log_batch

    def spy(client: MlflowClient, run_id: str, metrics: Sequence[Any] = (), *more: Any) -> None:
        sent.extend(metrics)
        log_batch(client, run_id, metrics, *more)

    monkeypatch.setattr(MlflowClient, "log_batch", spy)
    resumed = toy.tracker()
    assert resumed.flush()
    assert sent == []
    assert resumed.close("KILLED") == []

    again = TrialStarted(BEST, {"lr": 0.2}, 102.7)  # a perturbed config is no new param
    monkeypatch.undo()
    assert toy.track([again, *toy.events[9:]]).close() == []
    told = content(toy.uri)
    assert told[str(BEST)]["params"]["lr"] == "0.1"
    assert [step for step, *_ in told[str(BEST)]["history"]["train/loss"]] == [10, 20]
    assert {run["status"] for run in told.values()} == {"FINISHED", "FAILED"}


def test_params_are_sent_where_a_process_died_between_a_run_and_its_params(toy, other: str) -> None:
    """The config of a trial is read when it is queued, its run is made when its work begins."""
    toy.track(toy.events[:3]).close("KILLED")
    remembered = {path: path.read_bytes() for path in toy.folder.glob("*.json")}
    toy.track(toy.events[3:5]).close("KILLED")
    for path, text in remembered.items():  # as if it had died before it could remember more
        path.write_bytes(text)
    with sqlite3.connect(toy.uri.removeprefix("sqlite:///")) as connection:
        connection.execute("delete from params where key like 'net.%' or key = 'lr'")
    assert toy.track(toy.events[5:]).close() == []
    toy.sync(other)
    told, wanted = content(toy.uri), content(other)
    for name, run in wanted.items():
        assert told[name]["params"] == run["params"]
    assert told[str(BEST)]["params"]["lr"] == "0.1"


def test_a_new_store_in_the_place_of_the_old_one_gets_everything(toy, template_store: Path) -> None:
    """The remembered position is of no use to a store that is empty."""
    toy.track(toy.events[:9]).close("KILLED")
    Path(toy.uri.removeprefix("sqlite:///")).write_bytes(template_store.read_bytes())
    assert toy.track(toy.events).close() == []
    told = content(toy.uri)
    assert len(told) == 4
    assert [step for step, *_ in told[str(BEST)]["history"]["train/loss"]] == [10, 20]


def test_a_line_that_is_no_event_is_a_problem_and_the_rest_is_sent(toy, other: str) -> None:
    toy.track(toy.events).close()
    path = toy.folder / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b"{torn\n", b"\xff\xfe\n", *lines[3:], b'{"kind": "ro']))
    (problem,) = toy.sync(other).problems
    assert problem.startswith("event not understood (2)")
    assert content(other) == content(toy.uri)


def test_long_journals_are_read_in_pieces(toy, other: str, monkeypatch) -> None:
    toy.track(toy.events).close()
    monkeypatch.setattr("tuneparts.tracking._replay._CHUNK", 150)
    progress: list[int] = []
    assert toy.sync(other, on_progress=progress.append).points == 6
    assert progress == sorted(progress)
    assert progress[-1] == (toy.folder / "journal.jsonl").stat().st_size
    assert len(set(progress)) > 5
    assert content(other) == content(toy.uri)


def test_what_became_of_an_ended_trial_while_nobody_tracked_is_sent_once(toy, monkeypatch) -> None:
    from mlflow import MlflowClient

    row = {"val/nll": 1.0}
    first = [Row(BEST, 10, row, 2.0), TrialEnded(BEST, "failed", 3.0, "no")]
    toy.track([TrialStarted(BEST, {"lr": 0.1}, 1.0), *first]).close("KILLED")
    again = [TrialRetried(BEST, 4.0), Row(BEST, 20, row, 5.0), TrialEnded(BEST, "failed", 6.0, "2")]
    toy.write(again)
    assert toy.track([]).close("KILLED") == []
    told = content(toy.uri)[str(BEST)]
    assert (told["status"], told["times"]) == ("FAILED", (1000, 6000))
    assert [step for step, *_ in told["history"]["val/nll"]] == [10, 20]
    assert (told["tags"]["outcome"], told["tags"]["error"]) == ("failed", "2")

    toy.write([TrialVoided(BEST, 9.0, "void")])
    assert toy.track([]).close("KILLED") == []
    told = content(toy.uri)[str(BEST)]
    assert (told["status"], told["times"]) == ("FINISHED", (1000, 6000))
    assert (told["tags"]["outcome"], told["tags"]["error"]) == ("stopped", "void")

    ended: list[str] = []
    end = MlflowClient.set_terminated

    def spy(client: MlflowClient, run_id: str, *args: Any, **named: Any) -> None:
        ended.append(run_id)
        end(client, run_id, *args, **named)

    monkeypatch.setattr(MlflowClient, "set_terminated", spy)
    tracker = toy.tracker()
    assert tracker.close("KILLED") == []
    assert ended == [tracker.parent_run_id]
