"""Against a real MLflow server on this machine, which goes away and comes back."""

import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from tuneparts.search.events import Event, Row, TrialEnded, TrialId, TrialStarted
from tuneparts.tracking import frames, store

pytestmark = [pytest.mark.mlflow, pytest.mark.slow]


class Server:
    """An MLflow server over a SQLite store, in a process group of its own."""

    def __init__(self, store_uri: str, port: int) -> None:
        self.uri = f"http://127.0.0.1:{port}"
        self._command = store._ui_command(store_uri, port)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 120
        while (reason := store.unreachable(self.uri)) is not None:
            assert time.monotonic() < deadline, reason
            time.sleep(0.2)

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, 9)
            self._process.wait()
            self._process = None


@pytest.fixture
def server(uri: str, unused_port: int) -> Iterator[Server]:
    server = Server(uri, unused_port)
    server.start()
    yield server
    server.kill()


def story(num_trials: int, num_steps: int) -> list[Event]:
    """Trials that report in turn."""
    ids = [TrialId("a", 0, index) for index in range(num_trials)]
    events: list[Event] = [TrialStarted(t, {"lr": t.index}, 1.0) for t in ids]
    for step in range(num_steps):
        for t in ids:
            metrics = {"train/loss": float(step), "val/nll": t.index + step / 7}
            events.append(Row(t, step, metrics, 2.0 + step))
    return [*events, *(TrialEnded(t, "finished", 100.0) for t in ids)]


def assert_all_there_once(uri: str, parent: str | None, events: list[Event]) -> None:
    trials = frames.trials(uri, str(parent))
    assert trials["status"].unique().tolist() == ["FINISHED"]
    assert trials["param.lr"].tolist() == list(range(len(trials)))
    steps = frames.steps(uri, str(parent))
    got = list(zip(steps["trial"], steps["metric"], steps["step"], steps["value"], strict=True))
    wanted = [
        (str(event.trial), metric, event.step, value)
        for event in events
        if isinstance(event, Row)
        for metric, value in event.metrics.items()
    ]
    assert sorted(got) == sorted(wanted)
    # The frame drops doubles; the store itself must not have any.
    both = {run_id: {"train/loss", "val/nll"} for run_id in trials["run_id"]}
    assert len(store.points(store.client(uri), both)) == len(got)


def test_a_server_that_goes_away_misses_nothing(toy, server: Server) -> None:
    """Killed twice under load, the second time the driver is killed too."""
    events = story(num_trials=5, num_steps=40)
    tracker = toy.tracker(server.uri)
    for number, event in enumerate(events[:120]):
        toy.feed(tracker, [event])
        time.sleep(0.005)
        if number == 60:
            server.kill()
    assert not tracker.flush(0.5)
    assert tracker.writer.retries > 0
    assert tracker.writer.last_error is not None
    server.start()
    assert tracker.flush(60)
    assert tracker.writer.last_error is None

    server.kill()
    toy.feed(tracker, events[120:150])
    problems = tracker.close("KILLED", timeout=0.5)
    assert len(problems) == 1
    assert "the journal has everything" in problems[0]
    server.start()

    resumed = toy.track(events, server.uri)
    assert resumed.close() == []
    for where in (server.uri, toy.uri):
        assert_all_there_once(where, resumed.parent_run_id, events)
        assert len(frames.runs(where)) == 1


def test_a_server_that_comes_up_late(toy, unused_port: int) -> None:
    server = Server(toy.uri, unused_port)
    events = story(num_trials=2, num_steps=3)
    tracker = toy.track(events, server.uri)
    assert not tracker.flush(0.5)
    assert tracker.parent_run_id is None
    try:
        server.start()
        assert tracker.close() == []
        assert_all_there_once(server.uri, tracker.parent_run_id, events)
    finally:
        server.kill()


def test_points_sent_again_are_ignored_by_server_and_file(server: Server, uri: str) -> None:
    """What the tracker builds on: batches of old and new points, in any order, NaN included."""
    from mlflow.entities import Metric

    values = [0.1, float("nan"), float("inf"), -float("inf"), -0.0, 1 / 3]
    batch = [Metric("train/loss", value, 1000, step) for step, value in enumerate(values)]
    for where in (server.uri, uri):
        client = store.client(where)
        experiment = client.create_experiment(where.replace("/", "_"))
        run_id = client.create_run(experiment).info.run_id
        for some in (batch[:2], batch[:4], batch[::-1], batch, batch[3:]):
            client.log_batch(run_id, some)
        found = store.points(client, {run_id: {"train/loss"}})
        in_order = [point[-1] for point in sorted(found, key=lambda point: point[2])]
        assert in_order == pytest.approx(values, rel=0, abs=0, nan_ok=True)
