"""Measure what logging costs: our tracker and Ray's stock `MLflowLoggerCallback`, both to SQLite.

Both sides log the same trials: three params, and three metrics per point. Ray's callback logs
whatever a result holds, so the iteration that it needs is one of its three. Points come as fast as
the caller can hand them over. The time on the training side is that of the calls themselves, for
us a line in the journal and a word to the tracker; what the tracker's thread takes from the
interpreter lock shows in the total.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from tuneparts.bench import machine
from tuneparts.journal import Event, Journal, Row, TrialEnded, TrialId, TrialStarted
from tuneparts.tracking import store
from tuneparts.tracking.tracker import SearchCard, Tracker

CONFIG = {"lr": 0.1, "width": 16, "name": "mlp"}
_URI_VARIABLES = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI", "MLFLOW_EXPERIMENT_NAME")


def run(*, quick: bool = False) -> dict[str, Any]:
    """Seconds per point, taken from the training thread and in all, and the ratios."""
    trials, points, rounds = (2, 5, 2) if quick else (10, 50, 10)
    with tempfile.TemporaryDirectory() as name, _mlflow_as_it_was():
        ours = _Ours(Path(name), trials=trials, points=points)
        stock = _Stock(Path(name), trials=trials, points=points)
        seconds = machine.interleave({"ours": ours.round, "stock": stock.round}, rounds=rounds)
        problems = ours.close()
    if problems:
        raise RuntimeError(f"our side must log everything, but: {'; '.join(problems)}")
    rows = []
    medians: dict[tuple[str, str], float] = {}
    for way, rounds_of_way in seconds.items():
        for side, values in zip(
            ("training side", "total"), zip(*rounds_of_way, strict=True), strict=True
        ):
            found = machine.spread([1000 * value / (trials * points) for value in values])
            medians[way, side] = found["median"]
            per_point = {f"ms per point, {key}": value for key, value in found.items()}
            rows.append(
                {"way": way, "side": side, "trials": trials * rounds, "points": points} | per_point
            )
    return {
        "bench": "tracking",
        "ratios": {
            f"stock_over_ours_{side.replace(' ', '_')}": medians["stock", side]
            / medians["ours", side]
            for side in ("training side", "total")
        },
        "rows": rows,
        "machine": machine.describe(),
    }


class _Ours:
    """Our tracker, one search for all rounds."""

    def __init__(self, folder: Path, *, trials: int, points: int) -> None:
        card = SearchCard("ours", "smoke", digest="", commit="", resolved="{}")
        uri = f"sqlite:///{folder / 'ours.db'}"
        self._tracker = Tracker(uri, folder=folder / "ours", search=card)
        self._journal = Journal(folder / "ours" / "journal.jsonl")
        self._trials, self._points = trials, points
        self._indices = count()
        self._tracker.flush()

    def round(self) -> tuple[float, float]:
        """Seconds on the calling thread, and until everything is in the store."""
        events = [
            event
            for _ in range(self._trials)
            for event in _events(TrialId("ours", 0, next(self._indices)), self._points)
        ]
        spent = 0.0
        start = time.perf_counter()
        for event in events:
            spent += _seconds(lambda: self._tell(event))  # noqa: B023 - called at once
        if not self._tracker.flush(600):
            raise RuntimeError(f"the store must take all points, but: {self._tracker.stats}")
        return spent, time.perf_counter() - start

    def _tell(self, event: Event) -> None:
        """As a driver does: first the journal, and then the tracker, which reads it."""
        self._journal.append(event)
        self._tracker.on_event(event)

    def close(self) -> list[str]:
        self._journal.close()
        return self._tracker.close()


class _Stock:
    """Ray's callback, called as Tune calls it, without a cluster."""

    def __init__(self, folder: Path, *, trials: int, points: int) -> None:
        from ray.air.integrations.mlflow import MLflowLoggerCallback

        uri = f"sqlite:///{folder / 'stock.db'}"
        store.prepare(uri)
        self._callback = MLflowLoggerCallback(tracking_uri=uri, experiment_name="stock")
        self._callback.setup()
        self._trials, self._points = trials, points

    def round(self) -> tuple[float, float]:
        """Seconds on the calling thread, twice: nothing happens elsewhere."""
        start = time.perf_counter()
        spent = sum(self._trial() for _ in range(self._trials))
        return spent, time.perf_counter() - start

    def _trial(self) -> float:
        trial = _FakeTrial()
        spent = _seconds(lambda: self._callback.log_trial_start(trial))
        for point in range(1, self._points + 1):
            result = {"training_iteration": point, **_metrics(point)}
            spent += _seconds(lambda: self._callback.log_trial_result(point, trial, result))  # noqa: B023
        return spent + _seconds(lambda: self._callback.log_trial_end(trial))


class _FakeTrial:
    """What the callback asks of a trial."""

    config = CONFIG


def _events(trial: TrialId, points: int) -> Iterator[Event]:
    now = time.time()
    yield TrialStarted(trial, CONFIG, now)
    for point in range(1, points + 1):
        yield Row(trial, point, {"cost/passes": float(point), **_metrics(point)}, now + point)
    yield TrialEnded(trial, "finished", now + points)


def _metrics(point: int) -> dict[str, float]:
    return {"train/loss": 1 / point, "val/accuracy": 1 - 1 / point}


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@contextmanager
def _mlflow_as_it_was() -> Iterator[None]:
    """Undo what Ray's callback sets for the whole process."""
    import mlflow

    before = {name: os.environ.get(name) for name in _URI_VARIABLES}
    uri = mlflow.get_tracking_uri()
    try:
        yield
    finally:
        mlflow.set_tracking_uri(uri)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
