import dataclasses
import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from pandas.testing import assert_frame_equal

from tuneparts.core.schema import lookup
from tuneparts.search.card import ArmCard, RunCard
from tuneparts.search.events import Event, Row, TrialEnded, TrialId, TrialRunning, TrialStarted
from tuneparts.search.journal import Journal
from tuneparts.tracking import frames, record, store
from tuneparts.tracking.card import COLOUR_TAG, NOTE_TAG, VIEW_TAG, DataFacts, SearchCard
from tuneparts.tracking.tracker import Tracker

pytestmark = pytest.mark.mlflow
FIRST, SECOND = TrialId("random", 0, 0), TrialId("random", 0, 1)


def crash(tracker: Tracker) -> None:
    """Stop without a word, as a killed process does once its last call has returned."""
    assert tracker.flush()
    writer = tracker.writer
    writer._abandoned.set()
    writer.wake()
    writer._hurry.set()
    writer._thread.join()


def expected_steps(events: list[Event]) -> list[tuple[str, str, int, float, float]]:
    rows = [
        (str(event.trial), metric, event.step, event.time, value)
        for event in events
        if isinstance(event, Row)
        for metric, value in event.metrics.items()
    ]
    return sorted(rows, key=lambda row: (TrialId.parse(row[0]), row[1], row[2]))


def test_what_goes_in_comes_out(toy) -> None:
    assert toy.track(toy.events).close() == []
    trials, steps = toy.trials, toy.steps
    names = ["asha/seed3/00000", "random/seed0/00000", "random/seed0/00001"]
    assert trials["trial"].tolist() == names
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
    columns = steps["trial"], steps["metric"], steps["step"], times, steps["value"]
    assert repr(list(zip(*columns, strict=True))) == repr(expected_steps(toy.events))


def test_the_parent_run_tells_what_ran(toy) -> None:
    tracker = toy.track(toy.events)
    tracker.close()
    parent = store.client(toy.uri).get_run(tracker.parent_run_id)
    shown = {"search": "toy", "scale": "smoke", "digest": "d1", "commit": "c0ffee"}
    shown |= {"version.python": "3.11", "lab": "north"}
    assert shown.items() <= parent.data.tags.items()
    assert (toy.run["status"], toy.run["run"]) == ("FINISHED", "toy-20260101-000000")
    assert [toy.run[name] for name in ("finished", "stopped", "failed", "running")] == [1, 1, 1, 0]
    artifacts = Path(parent.info.artifact_uri.removeprefix("file://"))
    assert (artifacts / "search.json").read_text() == toy.card.resolved
    assert artifacts.is_relative_to(Path(toy.uri.removeprefix("sqlite:///")).parent / "artifacts")


def test_crash_at_every_event_leaves_no_trace(toy) -> None:
    """The store after N crashes, one per event, equals the store of an undisturbed run."""
    for stop in range(len(toy.events) + 1):
        crash(toy.track(toy.events[:stop]))
    assert toy.track(toy.events).close() == []
    assert len(frames.runs(toy.uri)) == 1
    calm = dataclasses.replace(toy, folder=toy.folder.with_name("calm"))
    calm.track(toy.events).close()
    assert_frame_equal(toy.trials, calm.trials)
    assert_frame_equal(toy.steps, calm.steps)
    raw = store.client(toy.uri)
    for run_id in toy.record.trials.values():
        for metric in raw.get_run(run_id).data.metrics:
            points = raw.get_metric_history(run_id, metric)
            assert len(points) == len({point.step for point in points})


def test_a_row_that_the_journal_lost_and_got_again_is_not_doubled(toy) -> None:
    """After a power cut the trial repeats its last step: same step, later time."""
    start = [TrialStarted(FIRST, {}, 1.0), Row(FIRST, 10, {"val/nll": 1.0}, 2.0)]
    crash(toy.track([*start, Row(FIRST, 20, {"val/nll": 0.5}, 3.0)]))
    journal = toy.folder / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))
    again = Row(FIRST, 20, {"val/nll": 0.5}, 50.0)
    assert toy.track([again, TrialEnded(FIRST, "finished", 60.0)]).close() == []
    points = store.client(toy.uri).get_metric_history(toy.record.trials[FIRST], "val/nll")
    assert [(point.step, point.timestamp) for point in points] == [(10, 2000), (20, 3000)]


def test_a_run_created_just_before_the_crash_is_found_again(toy) -> None:
    """The map on disk is older than the runs: key only, as if every later write was lost."""
    first = toy.tracker()
    before = json.loads((toy.folder / record.FILE).read_text())
    assert before["trials"] == {}
    crash(toy.feed(first, toy.events[:11]))
    oldest = {"key": before["key"], "parent": None, "trials": {}}
    (toy.folder / record.FILE).write_text(json.dumps(oldest))
    assert toy.track(toy.events).close() == []
    assert len(toy.trials) == 3
    assert len(toy.steps) == len(expected_steps(toy.events))
    assert toy.num_runs() == 4


def test_an_answer_lost_on_the_way_creates_no_second_run(toy, monkeypatch) -> None:
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
    tracker = toy.track(toy.events)
    assert tracker.close() == []
    assert len(lost) == tracker.writer.retries == toy.num_runs() == 4
    assert len(toy.steps) == len(expected_steps(toy.events))


def test_a_store_that_refuses_to_write_is_given_up_though_it_reads(toy, monkeypatch) -> None:
    """Such as a database of another user: what does not change is accepted again and again."""
    from mlflow import MlflowClient

    def refuse(*_: Any, **__: Any) -> None:
        raise ConnectionError("attempt to write a readonly database")

    toy.track(toy.events[:9]).close("KILLED")
    monkeypatch.setattr(MlflowClient, "set_experiment_tag", refuse)
    problems = toy.track(toy.events).close(timeout=1.0)
    assert any("readonly database" in line for line in problems)


def test_finished_trials_cost_no_call_on_resume(toy, monkeypatch) -> None:
    from mlflow import MlflowClient

    def counting(name: str, original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            return original(*args, **kwargs)

        return call

    toy.track(toy.events).close()
    calls: list[str] = []
    for name in ("create_run", "log_batch", "set_terminated"):
        monkeypatch.setattr(MlflowClient, name, counting(name, getattr(MlflowClient, name)))
    tracker = toy.track(toy.events)
    assert tracker.flush()
    assert calls == ["log_batch"]  # the parent's tags
    tracker.close()
    assert calls == ["log_batch", "set_terminated"]


def test_what_still_runs_is_killed_and_runs_again_on_resume(toy) -> None:
    toy.track(toy.events[:9]).close("KILLED")
    assert toy.trials["status"].tolist() == ["KILLED", "KILLED", "FAILED"]
    assert toy.trials["outcome"].tolist() == ["killed", "killed", "failed"]
    assert (toy.run["status"], toy.run["killed"], toy.run["failed"]) == ("KILLED", 2, 1)

    tracker = toy.track(toy.events[:10])
    assert tracker.flush()
    assert toy.trials["status"].tolist() == ["RUNNING", "RUNNING", "FAILED"]
    assert toy.trials["end"].isna().tolist() == [True, True, False]
    assert toy.run["status"] == "RUNNING"

    toy.feed(tracker, toy.events[10:]).close()
    assert toy.trials["status"].tolist() == ["FINISHED", "FINISHED", "FAILED"]
    assert [time.timestamp() for time in toy.trials["end"]] == [104.0, 104.5, 102.5]
    assert toy.run["status"] == "FINISHED"


def test_on_event_does_not_wait_for_the_store(toy, monkeypatch) -> None:
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
    tracker = toy.track(toy.events)
    assert not tracker.flush(timeout=0.1)
    assert tracker.calls.points == 0
    assert tracker.writer.waiting >= len(toy.events)
    gate.set()
    assert tracker.close() == []
    assert callers == {"tracking"}
    assert tracker.writer.waiting == 0


def test_a_metric_outside_the_schema_is_a_problem_and_the_rest_is_kept(toy, caplog) -> None:
    metrics = {"val/acuracy": 1.0, "val/accuracy": 0.5}
    with caplog.at_level(logging.WARNING):
        (problem,) = toy.track([Row(FIRST, step, metrics, 9.0) for step in range(3)]).close()
    assert "val/acuracy" in problem
    assert "(3)" in problem
    assert "Did you mean `val/accuracy`?" in problem
    assert sum("acuracy" in record.getMessage() for record in caplog.records) == 1
    assert toy.steps["metric"].tolist() == ["val/accuracy"] * 3


def test_values_that_are_no_numbers(toy) -> None:
    values = [float("nan"), float("inf"), -float("inf"), 0.0, 1]
    rows = [Row(FIRST, i, {"train/loss": v}, 5.0) for i, v in enumerate(values)]
    last = [Row(TrialId("b", 0, i), 1, {"train/loss": v}, 5.0) for i, v in enumerate(values)]
    crash(toy.track([*last, *rows]))
    toy.track([*last, *rows]).close()
    found = toy.steps[toy.steps["arm"] == "random"]
    assert repr(found["value"].tolist()) == "[nan, inf, -inf, 0.0, 1.0]"
    assert repr(toy.trials["train/loss"].tolist()) == "[nan, inf, -inf, 0.0, 1.0, 1.0]"


def test_a_perturbed_config_is_no_new_param(toy) -> None:
    tracker = toy.track([TrialRunning(FIRST, 1.0)])
    for lr in (0.1, 0.2):
        toy.feed(tracker, [TrialStarted(FIRST, {"lr": lr}, 1.0)])
        assert tracker.flush()
    assert tracker.close() == []
    assert toy.trials["param.lr"].tolist() == [0.1]


def test_only_the_entry_at_fault_is_left_out(toy) -> None:
    """MLflow refuses a whole batch for one bad name."""
    config = {f"p{i}": i for i in range(250)} | {"bad/../path": 1}
    events = [TrialStarted(FIRST, config, 1.0), Row(FIRST, 5, {"train/loss": 1.0}, 2.0)]
    (problem,) = toy.track(events).close()
    assert "bad/../path" in problem
    assert sum(name.startswith("param.") for name in toy.trials.columns) == 250
    assert toy.steps["value"].tolist() == [1.0]


def test_a_run_deleted_by_hand_is_a_problem_not_an_endless_retry(toy) -> None:
    both = (FIRST, SECOND)
    tracker = toy.track([Row(trial, 1, {"train/loss": 1.0}, 1.0) for trial in both])
    assert tracker.flush()
    store.client(toy.uri).delete_run(toy.record.trials[FIRST])
    toy.feed(tracker, [Row(trial, 2, {"train/loss": 2.0}, 2.0) for trial in both])
    toy.feed(tracker, [TrialEnded(trial, "finished", 3.0) for trial in both])
    assert len(tracker.close()) == 1
    assert toy.trials["trial"].tolist() == [str(SECOND)]
    assert toy.steps["step"].tolist() == [1, 2]


def test_a_deleted_experiment_comes_back(toy) -> None:
    client = store.client(toy.uri)
    client.delete_experiment(client.create_experiment("toy", store._artifact_root(toy.uri)))
    assert toy.track(toy.events).close() == []
    assert toy.run["run"] == toy.folder.name


def test_a_name_that_mlflow_refuses_is_reported_once(toy) -> None:
    toy.card = SearchCard(RunCard("", scale="smoke"))
    (problem,) = toy.track([Row(FIRST, 1, {"train/loss": 1.0}, 1.0)]).close()
    assert problem.startswith("nothing is tracked (1)")


def test_artifacts_go_to_the_parent(toy, tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "table.csv").write_text("a,b")
    (tmp_path / "report.html").write_text("<html>")
    (tmp_path / "report" / "link.html").symlink_to("/etc/passwd")
    (tmp_path / "report" / "link").symlink_to("/etc")
    tracker = toy.tracker()
    for name in ("report", "report.html", "missing.html"):
        tracker.log_artifact(tmp_path / name)
    (problem,) = tracker.close()
    assert "missing.html" in problem
    client, parent = store.client(toy.uri), tracker.parent_run_id
    found = {item.path for item in client.list_artifacts(parent)}
    assert found == {"search.json", "report", "report.html"}
    assert [item.path for item in client.list_artifacts(parent, "report")] == ["report/table.csv"]
    assert Path(client.download_artifacts(parent, "report/table.csv")).read_text() == "a,b"


def test_two_threads_at_once(toy) -> None:
    tracker = toy.tracker()
    journal, turn = Journal(toy.folder / "journal.jsonl"), threading.Lock()

    def report(seed: int) -> None:
        trial = TrialId("a", seed, 0)
        rows = [Row(trial, n, {"train/loss": seed + n}, float(n)) for n in range(1500)]
        end = TrialEnded(trial, "finished", 1500.0)
        for event in (TrialStarted(trial, {"lr": 0.1}, 0.0), *rows, end):
            with turn:
                journal.append(event)
            tracker.on_event(event)

    threads = [threading.Thread(target=report, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()
    assert tracker.close() == []
    assert tracker.calls.points == 3000
    for seed in (1, 2):
        values = toy.steps.loc[toy.steps["seed"] == seed, "value"].tolist()
        assert values == [float(seed + step) for step in range(1500)]


def test_descriptions_colours_data_and_tags_reach_the_store(toy) -> None:
    data = DataFacts("digits", lambda: "abc123", '{"name": "digits", "num_val": 100}')
    arms = (ArmCard("random", "standard", 1, (0,)),)
    run = dataclasses.replace(toy.card.run, question="Which is best?", arms=arms)
    toy.card = dataclasses.replace(toy.card, run=run, colours={"random": "#123456"}, data=data)
    tracker = toy.track(toy.events)
    assert tracker.flush()
    parent, client = tracker.parent_run_id, store.client(toy.uri)
    assert "Running" in client.get_run(parent).data.tags[NOTE_TAG]
    run_id = toy.record.trials[FIRST]
    assert tracker.run_id(FIRST) == run_id
    tracker.describe("random wins.")
    tracker.tag_trial(FIRST, {"selected": "yes"})
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


# A trial has an MLflow run from the moment that a worker takes it up, and not before.

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


def times(toy: Any) -> list[tuple[float, float]]:
    pairs = zip(toy.trials["start"], toy.trials["end"], strict=True)
    return [(start.timestamp(), end.timestamp()) for start, end in pairs]


def test_a_queued_trial_has_no_run_and_its_start_is_that_of_its_work(toy) -> None:
    tracker = toy.track(QUEUED)
    assert tracker.flush()
    assert toy.trials["trial"].tolist() == [str(FIRST)]
    assert (toy.run["running"], toy.run["queued"]) == (1, 1)
    assert toy.feed(tracker, REST).close() == []
    assert times(toy) == [(20.0, 30.0), (30.0, 40.0)]
    assert (toy.run["finished"], toy.run["queued"]) == (2, 0)


def test_a_queue_that_outlives_its_driver_keeps_its_configs(toy) -> None:
    assert toy.track(QUEUED).close("KILLED") == []
    assert (toy.run["killed"], toy.run["queued"]) == (1, 1)
    assert toy.track(REST).close() == []
    assert toy.trials["param.lr"].tolist() == [0.1, 0.2]
    assert toy.trials["status"].tolist() == ["FINISHED", "FINISHED"]
    assert times(toy) == [(20.0, 30.0), (30.0, 40.0)]
    assert toy.sync().runs == 0


def test_a_journal_of_an_older_version_starts_when_it_was_queued(toy) -> None:
    old = [event for event in [*QUEUED, *REST] if not isinstance(event, TrialRunning)]
    assert toy.track(old).close() == []
    assert times(toy) == [(10.0, 30.0), (10.0, 40.0)]


def test_the_parent_ranks_says_who_and_carries_params(toy) -> None:
    run = dataclasses.replace(
        toy.card.run, commit="0123456789ab-dirty", command="tuneparts search toy"
    )
    params = {"arms": ["random"], "arm": {f"a{i}": {"method": "x"} for i in range(150)}}
    toy.card = SearchCard(run, metric=lookup("val/accuracy"), params=params, user="ada")
    tracker = toy.track([*QUEUED, *REST])
    assert tracker.close() == []
    client = store.client(toy.uri)
    parent, child = client.get_run(tracker.parent_run_id), client.get_run(tracker.run_id(FIRST))
    shown = {"best/val/accuracy": 0.75, "arm/random/val/accuracy": 0.75, "trials/finished": 2.0}
    assert shown.items() <= parent.data.metrics.items()
    history = client.get_metric_history(tracker.parent_run_id, "best/val/accuracy")
    points = [(point.step, point.timestamp, point.value) for point in history]
    assert points == [(1, 30_000, 0.5), (2, 40_000, 0.75)]
    assert parent.data.params["arms"] == '["random"]'
    assert parent.data.params["arm.a149.method"] == "x"
    origin = {
        "mlflow.user": "ada",
        "mlflow.source.name": "tuneparts search toy",
        "mlflow.source.git.commit": "0123456789ab-dirty",
        "mlflow.source.type": "LOCAL",
    }
    for one in (parent, child):
        assert origin.items() <= one.data.tags.items()
    ranked = client.search_runs(
        [parent.info.experiment_id],
        "params.arms = '[\"random\"]' and metrics.`best/val/accuracy` > 0.7",
        order_by=["metrics.`best/val/accuracy` DESC"],
    )
    assert [run.info.run_id for run in ranked] == [tracker.parent_run_id]


def test_a_failed_trial_has_its_log_and_a_log_that_cannot_be_read_harms_nobody(
    toy, monkeypatch
) -> None:
    monkeypatch.setenv("TUNEPARTS_TEST_PASSWORD", "hunter2hunter2")

    def read_log(trial: TrialId) -> str:
        if trial == SECOND:
            raise OSError("the storage is away")
        return "10:00:00 Traceback: token=hunter2hunter2"

    ends = [TrialEnded(FIRST, "failed", 30.0, "no"), TrialEnded(SECOND, "failed", 31.0, "no")]
    tracker = toy.track([*QUEUED, *ends], read_log=read_log)
    (problem,) = tracker.close()
    assert "the storage is away" in problem
    text = str(store.artifact_text(toy.uri, str(tracker.run_id(FIRST)), "log.txt"))
    assert text.startswith("10:00:00 Traceback")
    assert "hunter2" not in text
    assert toy.trials["outcome"].tolist() == ["failed"] * 2


def test_nothing_planted_reaches_the_store(toy, tmp_path: Path, monkeypatch, caplog) -> None:
    token, password = "planted-token-value", 'planted"pass\\word'
    monkeypatch.setenv("PLANTED_TOKEN", token)
    monkeypatch.setenv("PLANTED_PASSWORD", password)
    commit = f"from https://me:{token}@host"
    toy.card = SearchCard(
        RunCard("toy", scale="smoke", digest="d1", commit=commit, versions={"python": token}),
        resolved=json.dumps({"notes": f"ask {password} or {token}", "api_key": "short"}),
        tags={"lab": f"see {token}", "db_password": "tiny"},
    )
    config = {"lr": 0.1, "path": f"/data/{token}", "inner": {"password": "tiny"}, token: 1}
    message = f"could not reach postgresql://me:{password}@db with {token}"
    tracker = toy.track(
        [
            TrialStarted(FIRST, config, 1.0),
            Row(FIRST, 1, {"val/nll": 0.5, f"x/{token}": 1.0}, 2.0),
            TrialEnded(FIRST, "failed", 3.0, message),
        ]
    )
    tracker.describe(f"ask {token}")
    tracker.tag_trial(FIRST, {"selected": f"by {token}"})
    problems = tracker.close()

    # All that the tracker wrote; the journal is what it was given.
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".jsonl"]
    texts = [path.read_bytes() for path in files] + [caplog.text.encode()]
    everything = b"\n".join([*texts, *map(str.encode, problems)])
    for form in (token, password, json.dumps(password)[1:-1], '"short"'):
        assert form.encode() not in everything
    found = toy.trials.iloc[0]
    assert found["param.lr"] == 0.1
    assert found["param.path"] == "/data/***"
    assert found["param.inner.password"] == "***"
