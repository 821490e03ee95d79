"""A tracker over an MLflow store that each test has to itself."""

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tuneparts.search.card import RunCard
from tuneparts.search.events import Event, Row, TrialEnded, TrialId, TrialRunning, TrialStarted
from tuneparts.search.journal import Journal
from tuneparts.tracking.card import SearchCard
from tuneparts.tracking.tracker import Tracker


@pytest.fixture
def card() -> SearchCard:
    return SearchCard(
        RunCard(
            "toy",
            scale="smoke",
            digest="d1gest",
            commit="c0ffee",
            versions={"python": "3.11"},
        ),
        resolved='{"question": "which?"}',
        tags={"lab": "north"},
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "toy-20260101-000000"


@pytest.fixture
def make_tracker(uri: str, folder: Path, card: SearchCard) -> Callable[[], Tracker]:
    return lambda: Tracker(uri, folder=folder, search=card, interval=0.01)


@pytest.fixture
def feed() -> Callable[[Tracker, Sequence[Event]], Tracker]:
    """Tells events as a driver does: first to the journal, and then to the tracker."""

    def tell(tracker: Tracker, events: Sequence[Event]) -> Tracker:
        journal = Journal(tracker._folder / "journal.jsonl")
        for event in events:
            journal.append(event)
            tracker.on_event(event)
        journal.close()
        return tracker

    return tell


@pytest.fixture
def events() -> list[Event]:
    """Three trials, interleaved: one finishes, one fails, one is stopped."""
    one, two, three = TrialId("random", 0, 0), TrialId("random", 0, 1), TrialId("asha", 3, 0)
    return [
        TrialStarted(one, {"lr": 0.1, "net": {"name": "mlp", "widths": [8, 4]}}, 90.0),
        TrialStarted(two, {"lr": 0.5, "net": {"name": "mlp", "widths": [2]}}, 90.0),
        TrialStarted(three, {"lr": 0.25}, 90.0),
        TrialRunning(one, 100.0),
        TrialRunning(two, 100.5),
        Row(one, 10, {"train/loss": 2.5, "val/accuracy": 0.25}, 101.0),
        Row(two, 10, {"train/loss": float("nan")}, 101.5),
        TrialRunning(three, 102.0),
        TrialEnded(two, "failed", 102.5, "the loss is NaN at pass 10"),
        Row(one, 20, {"train/loss": 1.5, "val/accuracy": 0.75}, 103.0),
        Row(three, 10, {"val/accuracy": 0.125}, 103.5),
        TrialEnded(three, "stopped", 104.0),
        TrialEnded(one, "finished", 104.5),
    ]


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
