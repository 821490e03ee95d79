"""MLflow on PostgreSQL: same events, same frames as on SQLite."""

import importlib.util
import socket
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from tests.harness import postgres
from tuneparts.search.card import RunCard
from tuneparts.search.events import Row, TrialEnded, TrialId, TrialStarted
from tuneparts.search.journal import Journal
from tuneparts.tracking import frames, store
from tuneparts.tracking.card import SearchCard
from tuneparts.tracking.tracker import Tracker

pytestmark = [pytest.mark.mlflow, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def server() -> Iterator[postgres.Postgres]:
    reason = postgres.why_not()
    if reason is not None:
        pytest.skip(reason)
    with postgres.Postgres() as running:
        yield running


def events() -> list[TrialStarted | Row | TrialEnded]:
    one, two = TrialId("random", 0, 0), TrialId("random", 0, 1)
    values = [0.1, float("nan"), float("inf"), -0.0, 1 / 3]
    return [
        TrialStarted(one, {"lr": 0.1, "net": {"widths": [8, 4]}}, 100.0),
        TrialStarted(two, {"lr": 0.5, "net": {"widths": [2]}}, 100.5),
        *(Row(one, step, {"val/nll": value}, 101.0 + step) for step, value in enumerate(values)),
        TrialEnded(two, "failed", 110.0, "the loss is NaN"),
        TrialEnded(one, "finished", 111.0),
    ]


def track(uri: str, folder: Path, *, between: object = None) -> tuple[pd.DataFrame, pd.DataFrame]:
    card = SearchCard(RunCard("toy", scale="smoke", digest="d", commit="c"))
    tracker = Tracker(uri, folder=folder, search=card, interval=0.01)
    journal = Journal(folder / "journal.jsonl")
    for number, event in enumerate(events()):
        journal.append(event)
        tracker.on_event(event)
        if number == 4 and callable(between):
            assert tracker.flush()
            between()
    assert tracker.close() == []
    parent = str(tracker.parent_run_id)
    return frames.trials(uri, parent).drop(columns="run_id"), frames.steps(uri, parent)


def test_postgres_holds_what_sqlite_holds_through_a_restart(server, tmp_path) -> None:
    pytest.importorskip("psycopg2")
    store.client(server.uri)
    sqlite = f"sqlite:///{tmp_path / 'mlflow.db'}"
    store.client(sqlite)
    expected = track(sqlite, tmp_path / "a")
    found = track(server.uri, tmp_path / "b", between=server.restart)
    for one, other in zip(found, expected, strict=True):
        pd.testing.assert_frame_equal(one, other)


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_server_comes_goes_and_leaves_nothing_behind() -> None:
    reason = postgres.why_no_server()
    if reason is not None:
        pytest.skip(reason)
    server = postgres.Postgres()
    with server:
        assert answers(server._port)
        server.restart()
        assert answers(server._port)
        folder = server._root
    assert not answers(server._port)
    assert not folder.exists()


def test_what_is_missing_is_said(monkeypatch) -> None:
    monkeypatch.setattr(postgres, "_binaries", lambda: None)
    assert "apt-get install postgresql" in str(postgres.why_no_server())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "psycopg2" in str(postgres.why_not())
