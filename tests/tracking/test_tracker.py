import dataclasses
import json
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from tuneparts.search.card import ArmCard, RunCard
from tuneparts.search.events import Event, Row, TrialEnded, TrialId, TrialRunning, TrialStarted
from tuneparts.tracking import frames, record, store
from tuneparts.tracking.card import COLOUR_TAG, NOTE_TAG, VIEW_TAG, DataFacts, SearchCard
from tuneparts.tracking.tracker import Tracker

pytestmark = pytest.mark.mlflow
MakeTracker = Callable[[], Tracker]
Feed = Callable[[Tracker, Sequence[Event]], Tracker]


def crash(tracker: Tracker) -> None:
    """Stop without a word, as a killed process does once its last call has returned."""
    assert tracker.flush()
    writer = tracker._writer
    writer._abandoned.set()
    writer.wake()
    writer._hurry.set()
    writer._thread.join()


def snapshot(uri: str, folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    known = record.load(folder)
    assert known is not None
    assert known.parent is not None
    trials = frames.trials(uri, known.parent)
    return trials.drop(columns="run_id"), frames.steps(uri, known.parent)


def expected_steps(events: list[Event]) -> list[tuple[str, str, int, float, float]]:
    rows = [
        (str(event.trial), metric, event.step, event.time, value)
        for event in events
        if isinstance(event, Row)
        for metric, value in event.metrics.items()
    ]
    return sorted(rows, key=lambda row: (TrialId.parse(row[0]), row[1], row[2]))


def test_what_goes_in_comes_out(
    make_tracker: MakeTracker, feed: Feed, uri: str, folder: Path, events: list[Event]
) -> None:
    tracker = feed(make_tracker(), events)
    assert tracker.close() == []
    trials, steps = snapshot(uri, folder)

    assert trials["trial"].tolist() == [
        "asha/seed3/00000",
        "random/seed0/00000",
        "random/seed0/00001",
    ]
    assert trials["arm"].tolist() == ["asha", "random", "random"]
    assert trials["seed"].tolist() == [3, 0, 0]
    assert trials["index"].tolist() == [0, 0, 1]
    assert trials["status"].tolist() == ["FINISHED", "FINISHED", "FAILED"]
    assert trials["outcome"].tolist() == ["stopped", "finished", "failed"]
    assert trials["error"].tolist() == ["", "", "the loss is NaN at pass 10"]
    assert trials["param.lr"].tolist() == [0.25, 0.1, 0.5]
    assert trials["param.net.widths"].tolist()[1:] == [[8, 4], [2]]
    assert trials["val/accuracy"].tolist()[:2] == [0.125, 0.75]
    assert [time.timestamp() for time in trials["start"]] == [102.0, 100.0, 100.5]
    assert [time.timestamp() for time in trials["end"]] == [104.0, 104.5, 102.5]

    times = [time.timestamp() for time in steps["time"]]
    got = list(
        zip(steps["trial"], steps["metric"], steps["step"], times, steps["value"], strict=True)
    )
    assert repr(got) == repr(expected_steps(events))


def test_the_parent_run_tells_what_ran(
    make_tracker: MakeTracker, feed: Feed, uri: str, events: list[Event], card: SearchCard
) -> None:
    tracker = feed(make_tracker(), events)
    tracker.close()
    parent = store.client(uri).get_run(tracker.parent_run_id)
    shown = {"search": "toy", "scale": "smoke", "digest": "d1gest", "commit": "c0ffee"}
    assert shown.items() <= parent.data.tags.items()
    assert parent.data.tags["version.python"] == "3.11"
    assert parent.data.tags["lab"] == "north"
    (run,) = frames.runs(uri).to_dict("records")
    assert run["status"] == "FINISHED"
    assert run["run"] == "toy-20260101-000000"
    assert [run[name] for name in ("finished", "stopped", "failed", "running")] == [1, 1, 1, 0]
    artifacts = Path(parent.info.artifact_uri.removeprefix("file://"))
    assert (artifacts / "search.json").read_text() == card.resolved
    assert artifacts.is_relative_to(Path(uri.removeprefix("sqlite:///")).parent / "artifacts")


def test_crash_at_every_event_leaves_no_trace(
    make_tracker: MakeTracker, feed: Feed, uri: str, folder: Path, events: list[Event]
) -> None:
    """The store after N crashes, one per event, equals the store of an undisturbed run."""
    for stop in range(len(events) + 1):
        crash(feed(make_tracker(), events[:stop]))
    assert feed(make_tracker(), events).close() == []
    disturbed = snapshot(uri, folder)
    assert len(frames.runs(uri)) == 1

    calm_folder = folder.with_name("calm")
    calm = Tracker(uri, folder=calm_folder, search=SearchCard(RunCard("toy", scale="smoke")))
    feed(calm, events).close()
    for got, wanted in zip(disturbed, snapshot(uri, calm_folder), strict=True):
        assert_frame_equal(got, wanted)
    raw = store.client(uri)
    for run_id in record.load(folder).trials.values():  # type: ignore[union-attr]
        for metric in raw.get_run(run_id).data.metrics:
            points = raw.get_metric_history(run_id, metric)
            assert len(points) == len({point.step for point in points})


def test_a_row_that_the_journal_lost_and_got_again_is_not_doubled(
    make_tracker: MakeTracker, feed: Feed, uri: str, folder: Path
) -> None:
    """After a power cut the trial repeats its last step: same step, later time."""
    trial = TrialId("a", 0, 0)
    start: list[Event] = [
        TrialStarted(trial, {}, 1.0),
        Row(trial, 10, {"val/nll": 1.0}, 2.0),
    ]
    lost = Row(trial, 20, {"val/nll": 0.5}, 3.0)
    again = Row(trial, 20, {"val/nll": 0.5}, 50.0)
    crash(feed(make_tracker(), [*start, lost]))
    journal = folder / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))
    tracker = feed(make_tracker(), [again, TrialEnded(trial, "finished", 60.0)])
    assert tracker.close() == []
    known = record.load(folder)
    assert known is not None
    points = store.client(uri).get_metric_history(known.trials[trial], "val/nll")
    assert [(point.step, point.timestamp) for point in points] == [(10, 2000), (20, 3000)]


def test_a_run_created_just_before_the_crash_is_found_again(
    make_tracker: MakeTracker, feed: Feed, uri: str, folder: Path, events: list[Event]
) -> None:
    """The map on disk is older than the runs: key only, as if every later write was lost."""
    first = make_tracker()
    before = (folder / record.FILE).read_text()
    assert json.loads(before)["trials"] == {}
    crash(feed(first, events[:11]))
    key = json.loads(before)["key"]
    (folder / record.FILE).write_text(json.dumps({"key": key, "parent": None, "trials": {}}))
    tracker = feed(make_tracker(), events)
    assert tracker.close() == []
    trials, steps = snapshot(uri, folder)
    assert len(trials) == 3
    assert len(steps) == len(expected_steps(events))
    assert len(store.search(store.client(uri), [_experiment(uri)], "")) == 4


def test_an_answer_lost_on_the_way_creates_no_second_run(
    make_tracker: MakeTracker,
    feed: Feed,
    uri: str,
    folder: Path,
    events: list[Event],
    monkeypatch: Any,
) -> None:
    """Every creation succeeds in the store, and the first answer to each gets lost."""
    from mlflow import MlflowClient

    create, lost = MlflowClient.create_run, set()

    def create_and_lose(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = create(self, *args, **kwargs)
        if kwargs["run_name"] not in lost:
            lost.add(kwargs["run_name"])
            raise ConnectionError("the line went dead")
        return made

    monkeypatch.setattr(MlflowClient, "create_run", create_and_lose)
    tracker = feed(make_tracker(), events)
    assert tracker.close() == []
    assert len(lost) == 4
    assert tracker.stats.retries == 4
    assert len(store.search(store.client(uri), [_experiment(uri)], "")) == 4
    assert len(snapshot(uri, folder)[1]) == len(expected_steps(events))


def test_a_store_that_refuses_to_write_is_given_up_though_it_reads(
    make_tracker: MakeTracker, feed: Feed, events: list[Event], monkeypatch: Any
) -> None:
    """Such as a database of another user: what does not change is accepted again and again."""
    from mlflow import MlflowClient

    def refuse(*_: Any, **__: Any) -> None:
        raise ConnectionError("attempt to write a readonly database")

    feed(make_tracker(), events[:9]).close("KILLED")
    monkeypatch.setattr(MlflowClient, "set_experiment_tag", refuse)
    tracker = feed(make_tracker(), events)
    problems = tracker.close(timeout=2.0)
    assert any("readonly database" in line for line in problems)


def test_finished_trials_cost_no_call_on_resume(
    make_tracker: MakeTracker, feed: Feed, events: list[Event], monkeypatch: Any
) -> None:
    from mlflow import MlflowClient

    feed(make_tracker(), events).close()
    calls: list[str] = []
    for name in ("create_run", "log_batch", "set_terminated"):
        monkeypatch.setattr(MlflowClient, name, _counting(calls, name, getattr(MlflowClient, name)))
    tracker = feed(make_tracker(), events)
    assert tracker.flush()
    assert calls == ["log_batch"]  # the parent's tags
    tracker.close()
    assert calls == ["log_batch", "set_terminated"]


def test_what_still_runs_is_killed_and_runs_again_on_resume(
    make_tracker: MakeTracker, feed: Feed, uri: str, folder: Path, events: list[Event]
) -> None:
    feed(make_tracker(), events[:9]).close("KILLED")
    trials, _ = snapshot(uri, folder)
    assert trials["status"].tolist() == ["KILLED", "KILLED", "FAILED"]
    assert trials["outcome"].tolist() == ["killed", "killed", "failed"]
    (run,) = frames.runs(uri).to_dict("records")
    assert (run["status"], run["killed"], run["failed"]) == ("KILLED", 2, 1)

    tracker = feed(make_tracker(), events[:10])
    assert tracker.flush()
    trials, _ = snapshot(uri, folder)
    assert trials["status"].tolist() == ["RUNNING", "RUNNING", "FAILED"]
    assert trials["end"].isna().tolist() == [True, True, False]
    assert frames.runs(uri)["status"].tolist() == ["RUNNING"]

    feed(tracker, events[10:]).close()
    trials, _ = snapshot(uri, folder)
    assert trials["status"].tolist() == ["FINISHED", "FINISHED", "FAILED"]
    assert [time.timestamp() for time in trials["end"]] == [104.0, 104.5, 102.5]
    assert frames.runs(uri)["status"].tolist() == ["FINISHED"]


def test_on_event_does_not_wait_for_the_store(
    make_tracker: MakeTracker, feed: Feed, events: list[Event], monkeypatch: Any
) -> None:
    """Every call to MLflow blocks until the test lets go; the caller never does."""
    from mlflow import MlflowClient

    gate, callers = threading.Event(), set()
    for name in ("get_experiment_by_name", "create_run", "log_batch"):
        original = getattr(MlflowClient, name)

        def wait(*args: Any, original: Any = original, **kwargs: Any) -> Any:
            callers.add(threading.current_thread().name)
            gate.wait()
            return original(*args, **kwargs)

        monkeypatch.setattr(MlflowClient, name, wait)
    tracker = feed(make_tracker(), events)
    assert not tracker.flush(timeout=0.1)
    assert tracker.stats.sent == 0
    assert tracker.stats.waiting >= len(events)
    gate.set()
    assert tracker.close() == []
    assert callers == {"tracking"}
    assert tracker.stats.waiting == 0


def test_a_metric_outside_the_schema_is_a_problem_and_the_rest_is_kept(
    make_tracker: MakeTracker, feed: Feed, uri: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trial = TrialId("a", 0, 0)
    tracker = make_tracker()
    with caplog.at_level(logging.WARNING):
        metrics = {"val/acuracy": 1.0, "val/accuracy": 0.5}
        feed(tracker, [Row(trial, step, metrics, 9.0) for step in range(3)])
        (problem,) = tracker.close()
    assert "val/acuracy" in problem
    assert "(3)" in problem
    assert "Did you mean `val/accuracy`?" in problem
    assert sum("acuracy" in record.getMessage() for record in caplog.records) == 1
    _, steps = snapshot(uri, folder)
    assert steps["metric"].unique().tolist() == ["val/accuracy"]
    assert len(steps) == 3


@pytest.mark.parametrize("last", ["nan", "inf", "-inf"])
def test_a_last_value_that_is_no_number(
    make_tracker: MakeTracker, feed: Feed, uri: str, folder: Path, last: str
) -> None:
    tracker = make_tracker()
    feed(tracker, [Row(TrialId("a", 0, 0), 1, {"train/loss": float(last)}, 1.0)])
    tracker.close()
    assert repr(snapshot(uri, folder)[0]["train/loss"].tolist()) == f"[{last}]"


def test_values_that_are_no_numbers(
    make_tracker: MakeTracker, feed: Feed, uri: str, folder: Path
) -> None:
    trial, inf = TrialId("a", 0, 0), float("inf")
    values = [float("nan"), inf, -inf, 0.0, 1]
    rows: list[Event] = [Row(trial, i, {"train/loss": v}, 5.0) for i, v in enumerate(values)]
    crash(feed(make_tracker(), rows))
    feed(make_tracker(), rows).close()
    _, steps = snapshot(uri, folder)
    assert repr(steps["value"].tolist()) == "[nan, inf, -inf, 0.0, 1.0]"


def test_a_perturbed_config_is_no_new_param(
    make_tracker: MakeTracker, feed: Feed, uri: str, folder: Path
) -> None:
    trial = TrialId("pbt", 0, 0)
    tracker = feed(make_tracker(), [TrialRunning(trial, 1.0)])
    for lr in (0.1, 0.2):
        feed(tracker, [TrialStarted(trial, {"lr": lr}, 1.0)])
        assert tracker.flush()
    assert tracker.close() == []
    assert snapshot(uri, folder)[0]["param.lr"].tolist() == [0.1]


def test_only_the_entry_at_fault_is_left_out(
    make_tracker: MakeTracker, feed: Feed, uri: str, folder: Path
) -> None:
    """MLflow refuses a whole batch for one bad name."""
    trial = TrialId("a", 0, 0)
    config = {f"p{i}": i for i in range(250)} | {"bad/../path": 1}
    tracker = make_tracker()
    feed(tracker, [TrialStarted(trial, config, 1.0), Row(trial, 5, {"train/loss": 1.0}, 2.0)])
    (problem,) = tracker.close()
    assert "bad/../path" in problem
    trials, steps = snapshot(uri, folder)
    assert sum(name.startswith("param.") for name in trials.columns) == 250
    assert steps["value"].tolist() == [1.0]


def test_a_run_deleted_by_hand_is_a_problem_not_an_endless_retry(
    make_tracker: MakeTracker, feed: Feed, uri: str, folder: Path
) -> None:
    gone, other = TrialId("a", 0, 0), TrialId("a", 0, 1)
    tracker = make_tracker()
    feed(tracker, [Row(trial, 1, {"train/loss": 1.0}, 1.0) for trial in (gone, other)])
    assert tracker.flush()
    known = record.load(folder)
    assert known is not None
    store.client(uri).delete_run(known.trials[gone])
    for trial in (gone, other):
        feed(tracker, [Row(trial, 2, {"train/loss": 2.0}, 2.0)])
        feed(tracker, [TrialEnded(trial, "finished", 3.0)])
    assert len(tracker.close()) == 1
    trials, steps = snapshot(uri, folder)
    assert trials["trial"].tolist() == [str(other)]
    assert steps["step"].tolist() == [1, 2]


def test_a_deleted_experiment_comes_back(
    make_tracker: MakeTracker, feed: Feed, uri: str, folder: Path, events: list[Event]
) -> None:
    client = store.client(uri)
    client.delete_experiment(client.create_experiment("toy", store.artifact_root(uri)))
    assert feed(make_tracker(), events).close() == []
    assert len(frames.runs(uri)) == 1


def test_a_name_that_mlflow_refuses_is_reported_once(feed: Feed, uri: str, folder: Path) -> None:
    tracker = Tracker(uri, folder=folder, search=SearchCard(RunCard("", scale="smoke")))
    feed(tracker, [Row(TrialId("a", 0, 0), 1, {"train/loss": 1.0}, 1.0)])
    (problem,) = tracker.close()
    assert problem.startswith("nothing is tracked (1)")


def test_artifacts_go_to_the_parent(make_tracker: MakeTracker, uri: str, tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "table.csv").write_text("a,b")
    (tmp_path / "report.html").write_text("<html>")
    (tmp_path / "report" / "link.html").symlink_to("/etc/passwd")
    (tmp_path / "report" / "link").symlink_to("/etc")
    tracker = make_tracker()
    tracker.log_artifact(tmp_path / "report")
    tracker.log_artifact(tmp_path / "report.html")
    tracker.log_artifact(tmp_path / "missing.html")
    (problem,) = tracker.close()
    assert "missing.html" in problem
    client = store.client(uri)
    found = {item.path for item in client.list_artifacts(tracker.parent_run_id)}
    assert found == {"search.json", "report", "report.html"}
    sent = client.list_artifacts(tracker.parent_run_id, "report")
    assert [item.path for item in sent] == ["report/table.csv"]
    table = client.download_artifacts(tracker.parent_run_id, "report/table.csv")
    assert Path(table).read_text() == "a,b"


def test_two_threads_at_once(make_tracker: MakeTracker, feed: Feed, uri: str, folder: Path) -> None:
    tracker = make_tracker()

    def report(seed: int) -> None:
        trial = TrialId("a", seed, 0)
        rows = [Row(trial, n, {"train/loss": seed + n}, float(n)) for n in range(1500)]
        end = TrialEnded(trial, "finished", 1500.0)
        feed(tracker, [TrialStarted(trial, {"lr": 0.1}, 0.0), *rows, end])

    threads = [threading.Thread(target=report, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tracker.close() == []
    assert tracker.stats.sent == 3000
    _, steps = snapshot(uri, folder)
    for seed in (1, 2):
        values = steps.loc[steps["seed"] == seed, "value"].tolist()
        assert values == [float(seed + step) for step in range(1500)]


def _experiment(uri: str) -> str:
    return str(store.client(uri).get_experiment_by_name("toy").experiment_id)


def _counting(calls: list[str], name: str, original: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return original(*args, **kwargs)

    return call


def test_descriptions_colours_data_and_tags_reach_the_store(
    feed: Feed, uri: str, folder: Path, card: SearchCard, events: list[Event]
) -> None:
    data = DataFacts("digits", lambda: "abc123", '{"name": "digits", "num_val": 100}')
    arms = (ArmCard("random", "standard", 1, (0,)),)
    run = dataclasses.replace(card.run, question="Which is best?", arms=arms)
    card = dataclasses.replace(card, run=run, colours={"random": "#123456"}, data=data)
    tracker = feed(Tracker(uri, folder=folder, search=card, interval=0.01), events)
    assert tracker.flush()
    parent = tracker.parent_run_id
    client = store.client(uri)
    assert "Running" in client.get_run(parent).data.tags[NOTE_TAG]
    run_id = frames.trials(uri, str(parent)).set_index("trial")["run_id"]["random/seed0/00000"]
    best = TrialId("random", 0, 0)
    assert tracker.run_id(best) == run_id
    tracker.describe("random wins.")
    tracker.tag_trial(best, {"selected": "yes"})
    assert tracker.close() == []

    run, trial = client.get_run(parent), client.get_run(run_id)
    first, _, rest = run.data.tags[NOTE_TAG].partition("\n\n")
    assert first.startswith("**[Report](")  # MLflow folds what does not fit, and covers its links
    assert rest.startswith("Which is best?")
    assert "random wins." in run.data.tags[NOTE_TAG]
    assert trial.data.tags["selected"] == "yes"
    assert trial.data.tags[COLOUR_TAG] == "#123456"
    assert f"runs/{parent}/artifacts" in trial.data.tags[NOTE_TAG]
    for found in (run, trial):
        (given,) = found.inputs.dataset_inputs
        assert (given.dataset.name, given.dataset.digest) == ("digits", "abc123")
    assert {file.path for file in client.list_artifacts(parent)} == {"search.json", "metadata.json"}
    experiment = client.get_experiment(run.info.experiment_id)
    assert experiment.tags[NOTE_TAG].startswith("Which is best?")
    assert VIEW_TAG in experiment.tags
