"""What logging costs: our tracker and Ray's stock `MLflowLoggerCallback`, both to SQLite.

Both sides log the same trials: three params, and three metrics per point. Ray's callback logs
whatever a result holds, so the iteration that it needs is one of its three. Points come as fast as
the caller can hand them over. The time on the training side is that of the calls themselves, for
us a line in the journal and a note to the tracker; what the tracker's thread takes from the
interpreter lock shows in the total.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeAlias
from unittest.mock import patch

from benchmarks.measure import interleave, spread
from benchmarks.results import Result, Row, result, tell
from tuneparts.search.card import RunCard
from tuneparts.search.events import Event, TrialEnded, TrialId, TrialStarted
from tuneparts.search.events import Row as Point
from tuneparts.search.journal import Journal
from tuneparts.tracking import store
from tuneparts.tracking.card import SearchCard
from tuneparts.tracking.tracker import Tracker

_CONFIG = {"lr": 0.1, "width": 16, "name": "mlp"}
_SIDES = ("total", "training side")
Rounds: TypeAlias = Iterator[tuple[float, float]]
"""Seconds of a round in all, until everything is in the store, and those on the calling thread."""


def run(*, quick: bool) -> Result:
    """Seconds per point, in all and taken from the training thread, and the ratios."""
    import mlflow

    trials, points, rounds = (2, 5, 2) if quick else (10, 50, 10)
    uri = mlflow.get_tracking_uri()
    with tempfile.TemporaryDirectory() as name, patch.dict(os.environ):
        card = SearchCard(RunCard("ours", scale="smoke"))
        tracker = Tracker(f"sqlite:///{name}/ours.db", folder=Path(name, "ours"), search=card)
        journal = Journal(Path(name, "ours", "journal.jsonl"))
        ours = _ours(tracker, journal, trials, points)
        stock = _stock(f"sqlite:///{name}/stock.db", trials, points)
        ways = {"ours": partial(next, ours), "stock": partial(next, stock)}
        seconds = interleave(ways, rounds=rounds)
        journal.close()
        problems = tracker.close()
        mlflow.set_tracking_uri(uri)  # Ray's callback has set it for the process
    if problems:
        raise RuntimeError(f"our side must log everything, but: {'; '.join(problems)}")
    rows: list[Row] = []
    medians: dict[tuple[str, str], float] = {}
    for number, side in enumerate(_SIDES):
        for way, found in seconds.items():
            per_point = spread([1000 * both[number] / (trials * points) for both in found])
            medians[way, side] = per_point["median"]
            row: Row = {"way": way, "side": side, "trials": trials * rounds, "points": points}
            rows.append(row | {f"ms per point, {key}": value for key, value in per_point.items()})
            tell(rows[-1])
    found_ratios = {
        f"stock_over_ours_{side.replace(' ', '_')}": medians["stock", side] / medians["ours", side]
        for side in _SIDES
    }
    return result("tracking", found_ratios, rows)


def _ours(tracker: Tracker, journal: Journal, trials: int, points: int) -> Rounds:
    """Our tracker; one search for all rounds."""
    tracker.flush()
    for number in count():
        events = [
            event
            for index in range(number * trials, (number + 1) * trials)
            for event in _events(TrialId("ours", 0, index), points)
        ]
        start = time.perf_counter()
        # As a driver does: first the journal, and then the tracker, which reads it.
        spent = sum(
            _seconds(journal.append, event) + _seconds(tracker.on_event, event) for event in events
        )
        if not tracker.flush(600):
            raise RuntimeError(f"the store must take all points, but: {tracker.writer.last_error}")
        yield time.perf_counter() - start, spent


def _events(trial: TrialId, points: int) -> Iterator[Event]:
    now = time.time()
    yield TrialStarted(trial, _CONFIG, now)
    for point in range(1, points + 1):
        yield Point(trial, point, {"cost/steps": float(point), **_metrics(point)}, now + point)
    yield TrialEnded(trial, "finished", now + points)


def _stock(uri: str, trials: int, points: int) -> Rounds:
    """Ray's callback, called as Tune calls it, without a cluster; it has no other thread."""
    from ray.air.integrations.mlflow import MLflowLoggerCallback

    store.client(uri)
    callback = MLflowLoggerCallback(tracking_uri=uri, experiment_name="stock")
    callback.setup()
    while True:
        start, spent = time.perf_counter(), 0.0
        for _ in range(trials):
            trial = type("Trial", (), {"config": _CONFIG})  # all that the callback asks of one
            spent += _seconds(callback.log_trial_start, trial)
            for point in range(1, points + 1):
                values = {"training_iteration": point, **_metrics(point)}
                spent += _seconds(callback.log_trial_result, point, trial, values)
            spent += _seconds(callback.log_trial_end, trial)
        yield time.perf_counter() - start, spent


def _metrics(point: int) -> dict[str, float]:
    return {"train/loss": 1 / point, "val/accuracy": 1 - 1 / point}


def _seconds(call: Callable[..., object], *args: object) -> float:
    start = time.perf_counter()
    call(*args)
    return time.perf_counter() - start
