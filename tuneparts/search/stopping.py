"""How a search ends though trials are left: limits, and requests from another process.

Trials of a seed are compared with a target in their order, whichever worker was faster.
"""

import math
import stat
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pydantic import Field

from tuneparts.core import atomic
from tuneparts.core.config import Config
from tuneparts.core.errors import StorageError
from tuneparts.core.schema import Metric
from tuneparts.search.events import TrialId
from tuneparts.search.state import RunState, TrialRecord

_HOUR = 3600.0
REQUEST = "stop.txt"
_LONGESTREQUEST = 200


class Stop(Config):
    """Limits of a search."""

    hours: float | None = Field(default=None, gt=0)
    """By the clock, while it runs; then all of it stops."""
    target: float | None = None
    """The first trial of a seed with this selection score, or a better one, is its last."""


class _Limits:
    """Compares a search that runs with its limits; `state` holds what earlier drivers did."""

    def __init__(self, stop: Stop | None, metric: Metric, state: RunState) -> None:
        self._stop = stop or Stop()
        self._metric = metric
        self._trials = state.trials
        self._begin = time.monotonic() - _busy_seconds(state.trials.values())
        self._num_below: Counter[tuple[str, int]] = Counter()
        """First trials of each seed that ended without reaching the target."""

    def exceeded(self) -> str | None:
        hours = self._stop.hours
        if hours is None or time.monotonic() - self._begin < hours * _HOUR:
            return None
        return f"the search has run for {hours:g} hours"

    def reached(self, arm: str, seed: int) -> tuple[int, str] | None:
        """How many first trials of a seed count, and why; None while it is to go on."""
        target, name = self._stop.target, self._metric.name
        while target is not None:
            index = self._num_below[arm, seed]
            record = self._trials.get(TrialId(arm, seed, index))
            if record is None or record.end is None:
                return None
            last = record.last if record.end.outcome == "finished" else None
            score = math.nan if last is None else last.metrics.get(name, math.nan)
            if math.isfinite(score) and not self._metric.better(target, score):
                return index + 1, f"trial {index} has reached {name} {target:g}"
            self._num_below[arm, seed] += 1
        return None


def request(folder: Path, message: str) -> Path:
    """Ask the driver of a run, on any machine, to stop it; the returned file goes when it has."""
    path = folder / REQUEST
    try:
        atomic.write_text(path, message)
    except OSError as error:
        raise StorageError(f"{path}: the request to stop cannot be written: {error}.") from error
    return path


def _requested(folder: Path) -> str | None:
    """The message of a request that waits, in any plain file of its name; None without one."""
    path = folder / REQUEST
    with suppress(OSError):
        if stat.S_ISREG(path.lstat().st_mode):
            with path.open("rb") as file:
                text = file.read(_LONGESTREQUEST).decode("utf-8", "replace")
            return " ".join(text.split()) or "asked for"
    return None


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds that lie in at least one of the spans from begin to end."""
    total, reach = 0.0, -math.inf
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reach))
        reach = max(reach, end)
    return total


def _busy_seconds(trials: Iterable[TrialRecord]) -> float:
    """Seconds by the clock in which some trial ran; the time between two drivers is left out."""
    spans = []
    for record in trials:
        before = 0.0
        for _, row in sorted(record.rows.items()):
            seconds = row.metrics.get("cost/seconds", 0.0)
            spans.append((row.time - max(0.0, seconds - before), row.time))
            before = seconds
    return covered(spans)
