"""Bench of a search of many trials that only sleep: driver, tracker, store and report.

Everything but training is real: Ray places the trials, workers write checkpoints, the journal and
the MLflow store fill up, and the report is made from the store. The driver is measured ten times,
so that a cost that grows with what is already finished shows.
"""

import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneparts.bench import machine
from tuneparts.testing.null import NullConfig
from tuneparts.journal import Event, TrialEnded

NUM_READINGS = 10
"""How often the time and memory of the driver are read."""


@dataclass(frozen=True)
class Reading:
    """Time and memory of the driver after so many finished trials."""

    finished: int
    seconds: float
    cpu_seconds: float
    """Of all threads of the driver's process."""
    memory: int
    """Resident bytes of the driver's process."""


class Meter:
    """Observes a search and reads the clock and memory of its own process every so many trials."""

    def __init__(self, trials: int) -> None:
        self._every = max(1, trials // NUM_READINGS)
        self._finished = 0
        self.readings = [self._read()]

    def on_event(self, event: Event) -> None:
        if isinstance(event, TrialEnded):
            self._finished += 1
            if self._finished % self._every == 0:
                self.readings.append(self._read())

    def _read(self) -> Reading:
        return Reading(self._finished, time.perf_counter(), time.process_time(), _resident())


def run(
    *, quick: bool = False, trials: int | None = None, report: Callable[[Any], None] | None = None
) -> dict[str, Any]:
    """Run so many trials.

    Args:
        quick: a few hundred instead of ten thousand.
        trials: how many, when neither fits.
        report: makes the report of a run (`runs.Run`); timed when given.
    """
    from tuneparts.executors import execute
    from tuneparts.search import runs
    from tuneparts.tracking import store
    from tuneparts.tracking.tracker import SearchCard, Tracker

    trials = trials or (200 if quick else 10_000)
    with tempfile.TemporaryDirectory(prefix="tuneparts-scale-") as name, _places(Path(name)) as uri:
        search = _search(trials)
        made = runs.create(
            Path(name), search, command="tuneparts bench search --simulate", commit="",
            versions={}, storage=None,
        )  # fmt: skip
        store.prepare(uri)
        card = SearchCard(search.name, "smoke", digest=search.digest, commit="", resolved="{}")
        tracker = Tracker(uri, folder=made.folder, search=card)
        meter = Meter(trials)
        execute(search, folder=made.folder, observers=[tracker, meter])
        trained = time.perf_counter()
        problems = tracker.close(timeout=120)
        sent = time.perf_counter()
        if problems:
            raise RuntimeError(f"everything must be in the store, but: {'; '.join(problems)}")
        if report is not None:
            report(made)
        reported = time.perf_counter()
        sizes = {
            "database MB": (Path(name) / "mlflow.db").stat().st_size / 1e6,
            "journal MB": (made.folder / "journal.jsonl").stat().st_size / 1e6,
        }
    whole = {
        "finished": trials,
        "seconds": trained - meter.readings[0].seconds,
        "trials per s": trials / (trained - meter.readings[0].seconds),
        "flush s": sent - trained,
        "report s": reported - sent,
        **sizes,
    }
    rows = [*table(meter.readings), whole]
    return {
        "bench": "search --simulate",
        "ratios": growth(meter.readings),
        "rows": rows,
        "machine": machine.describe(),
    }


def table(readings: list[Reading]) -> list[dict[str, Any]]:
    """Make one row per reading: what the trials since the last one took."""
    rows = []
    for before, after in itertools.pairwise(readings):
        count = after.finished - before.finished
        rows.append(
            {
                "finished": after.finished,
                "seconds": after.seconds - readings[0].seconds,
                "trials per s": count / (after.seconds - before.seconds),
                "driver CPU ms per trial": 1e3 * (after.cpu_seconds - before.cpu_seconds) / count,
                "driver MB": after.memory / 1e6,
                "KB per trial": (after.memory - before.memory) / 1e3 / count,
            }
        )
    return rows


def growth(readings: list[Reading]) -> dict[str, float]:
    """Ratio of the cost per trial in the second half to that in the second quarter.

    It is 1 where a cost is linear in the number of trials.

    The first quarter is left out: caches and libraries fill up in it.
    """
    quarter, half, end = readings[len(readings) // 4], readings[len(readings) // 2], readings[-1]

    def per_trial(value: Callable[[Reading], float], before: Reading, after: Reading) -> float:
        return (value(after) - value(before)) / max(1, after.finished - before.finished)

    found = {}
    values: dict[str, Callable[[Reading], float]] = {
        "seconds": lambda reading: reading.seconds,
        "cpu": lambda reading: reading.cpu_seconds,
        "memory": lambda reading: float(reading.memory),
    }
    for name, value in values.items():
        early, late = per_trial(value, quarter, half), per_trial(value, half, end)
        found[f"{name}_per_trial_late_over_early"] = late / early if early > 0 else float("nan")
    return found


def _search(trials: int) -> Any:
    from tuneparts.data.config import DataConfig
    from tuneparts.search.space import Uniform
    from tuneparts.search.spec import Arm, RandomSearch, Scale, Search

    arm = Arm(
        name="null",
        config=NullConfig(passes=2, interval=1, seconds=0.001),
        algorithm=RandomSearch(num_trials=trials),
        space={"x": Uniform(low=0.0, high=1.0)},
    )
    return Search(
        name="simulated",
        question="What does a search cost besides training?",
        scale=Scale.SMOKE,
        data=DataConfig(name="digits", num_train=10, num_val=10, num_test=10),
        metric="val/accuracy",
        passes=2,
        seeds=(0,),
        arms=(arm,),
        figures=("accuracy",),
    )


@contextmanager
def _places(folder: Path) -> Iterator[str]:
    """Point the settings at a results folder and a store in this folder, for the block."""
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    wanted = {"TUNEPARTS_RESULTS": str(folder), "TUNEPARTS_TRACKING_URI": uri}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield uri
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
