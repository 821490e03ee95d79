"""How a search ends though trials are left: limits, and requests from another process.

Trials of a replicate are compared with a target in their order and not in that of arrival: where a
replicate stops does not depend on which worker was faster.
"""

import math
import stat
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import Field

from tuneparts.core import atomic
from tuneparts.core.config import Config
from tuneparts.core.errors import StorageError
from tuneparts.core.schema import Metric
from tuneparts.search.journal import Row, TrialId, TrialRecord

_HOUR = 3600.0
_REQUEST = "stop.txt"
_LONGEST_REQUEST = 200


class Stop(Config):
    """Limits of a search.

    Example:
        >>> Stop(hours=2, target=0.99)
        Stop(hours=2.0, target=0.99)
    """

    hours: float | None = Field(default=None, gt=0)
    """By the clock, while it runs; then all of it stops."""
    target: float | None = None
    """The first trial of a replicate with this selection score, or a better one, is its last."""


class Limits:
    """Compares a search that runs with its limits.

    Args:
        stop: the limits; None for none.
        metric: that trials are selected by.
        rows: what earlier drivers of the run have recorded.
    """

    def __init__(self, stop: Stop | None, metric: Metric, rows: Iterable[Row]) -> None:
        self._stop = stop or Stop()
        self._metric = metric
        self._begin = time.monotonic() - _busy_seconds(rows)
        self._num_below: Counter[tuple[str, int]] = Counter()
        """First trials of each replicate that ended without reaching the target."""

    def exceeded(self) -> str | None:
        """Why the whole search is to stop now; None if it is not."""
        hours = self._stop.hours
        if hours is None or time.monotonic() - self._begin < hours * _HOUR:
            return None
        return f"the search has run for {hours:g} hours"

    def reached(
        self, arm: str, seed: int, trials: Mapping[TrialId, TrialRecord]
    ) -> tuple[int, str] | None:
        """How many first trials of a replicate count, and why; None while it is to go on."""
        target, name = self._stop.target, self._metric.name
        while target is not None:
            index = self._num_below[arm, seed]
            record = trials.get(TrialId(arm, seed, index))
            if record is None or record.end is None:
                return None
            last = record.last if record.end.outcome == "finished" else None
            score = math.nan if last is None else last.metrics.get(name, math.nan)
            if math.isfinite(score) and not self._metric.better(target, score):
                return index + 1, f"trial {index} has reached {name} {target:g}"
            self._num_below[arm, seed] += 1
        return None


def request(folder: Path, message: str) -> Path:
    """Ask the driver of a run to stop it; returns a file that goes when it has done so.

    Args:
        folder: of the run, which need not lie on the driver's machine.
        message: who asks; the reason in the journal.
    """
    path = folder / _REQUEST
    try:
        atomic.write_text(path, message)
    except OSError as error:
        raise StorageError(f"{path}: the request to stop cannot be written: {error}.") from error
    return path


def requested(folder: Path) -> str | None:
    """The message of a request that waits; None without one. Any plain file of its name is one."""
    path = folder / _REQUEST
    with suppress(OSError):
        if stat.S_ISREG(path.lstat().st_mode):
            with path.open("rb") as file:
                text = file.read(_LONGEST_REQUEST).decode("utf-8", "replace")
            return " ".join(text.split()) or "asked for"
    return None


def answer(folder: Path) -> None:
    """Remove a request that was dealt with."""
    (folder / _REQUEST).unlink(missing_ok=True)


def _busy_seconds(rows: Iterable[Row]) -> float:
    """Seconds by the clock in which some trial ran; the time between two drivers is left out."""
    before: dict[TrialId, float] = {}
    spans = []
    for row in sorted(rows, key=lambda one: (one.trial, one.step)):
        seconds = row.metrics.get("cost/seconds", 0.0)
        spans.append((row.time - max(0.0, seconds - before.get(row.trial, 0.0)), row.time))
        before[row.trial] = seconds
    total, reach = 0.0, -math.inf
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reach))
        reach = max(reach, end)
    return total
