"""A search `toy` with a run folder and an MLflow store to itself."""

import dataclasses
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tuneparts.search.card import RunCard
from tuneparts.search.events import Event, Row, TrialEnded, TrialId, TrialRunning, TrialStarted
from tuneparts.search.journal import Journal
from tuneparts.tracking import frames, record, store
from tuneparts.tracking.card import SearchCard
from tuneparts.tracking.tracker import Tracker, _Synced, sync


@dataclasses.dataclass
class Toy:
    """What tests of tracking do with a run."""

    uri: str
    folder: Path
    card: SearchCard
    events: list[Event]

    def tracker(self, uri: str | None = None, **more: Any) -> Tracker:
        """Start a tracker over the folder, as a driver does."""
        place = uri or self.uri
        return Tracker(place, folder=self.folder, search=self.card, interval=0.01, **more)

    def feed(self, tracker: Tracker, events: Sequence[Event]) -> Tracker:
        """Write events as a driver does: first to the journal, and then to the tracker."""
        self.write(events, then=tracker.on_event)
        return tracker

    def write(self, events: Sequence[Event], then: Any = lambda _: None) -> None:
        journal = Journal(self.folder / "journal.jsonl")
        for event in events:
            journal.append(event)
            then(event)
        journal.close()

    def track(self, events: Sequence[Event], uri: str | None = None, **more: Any) -> Tracker:
        """A new tracker that is fed these events."""
        return self.feed(self.tracker(uri, **more), events)

    def sync(self, uri: str | None = None, **more: Any) -> _Synced:
        return sync(self.folder, uri or self.uri, self.card, **more)

    @property
    def record(self) -> record.Record:
        known = record.load(self.folder)
        assert known is not None
        return known

    @property
    def trials(self) -> pd.DataFrame:
        """The trials in the store."""
        return frames.trials(self.uri, str(self.record.parent)).drop(columns="run_id")

    @property
    def steps(self) -> pd.DataFrame:
        """The steps in the store."""
        return frames.steps(self.uri, str(self.record.parent))

    @property
    def run(self) -> dict[str, Any]:
        """The one parent run in the store."""
        (run,) = frames.runs(self.uri).to_dict("records")
        return run

    def num_runs(self) -> int:
        """All MLflow runs of the experiment."""
        client = store.client(self.uri)
        experiment = client.get_experiment_by_name("toy").experiment_id
        return len(store._search(client, [experiment], ""))


@pytest.fixture
def toy(uri: str, tmp_path: Path) -> Toy:
    """Three trials, interleaved: one finishes, one fails, one is stopped."""
    card = SearchCard(
        RunCard("toy", scale="smoke", digest="d1", commit="c0ffee", versions={"python": "3.11"}),
        resolved='{"question": "which?"}',
        tags={"lab": "north"},
    )
    one, two, three = TrialId("random", 0, 0), TrialId("random", 0, 1), TrialId("asha", 3, 0)
    events: list[Event] = [
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
    return Toy(uri, tmp_path / "toy-20260101-000000", card, events)


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
