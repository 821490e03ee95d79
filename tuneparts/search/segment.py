"""A segment: the part of a trial that runs without a decision of its algorithm in between."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tuneparts.core.schema import Metric
from tuneparts.search.events import TrialId


@dataclass(frozen=True)
class Segment:
    """An order to a worker: train one trial until it has spent so many steps."""

    trial: TrialId
    config: Mapping[str, Any]
    """The method's config as plain values."""
    until: int
    """Steps at which the segment ends; it begins at `start`."""
    start: int = 0
    round: int = 0
    """Number of segments of the trial that came before."""
    donor: TrialId | None = None
    """The trial from whose state of the round before this one starts, if not from its own."""


@dataclass(frozen=True)
class Result:
    """How a segment ended, as its algorithm sees it: the last metrics, or why it failed."""

    metrics: Mapping[str, float]
    failure: str | None = None

    def score(self, metric: Metric) -> float:
        """The value of a metric; NaN if the segment failed, or did not report a finite one."""
        value = self.metrics.get(metric.name, math.nan)
        return value if self.failure is None and math.isfinite(value) else math.nan

    def scores(self, metrics: Sequence[Metric]) -> list[float]:
        return [self.score(metric) for metric in metrics]


class _Await(Enum):
    """When an algorithm is asked again, where it does not name trials."""

    ALL = "all"
    """When all that run have ended; it gets the results of all."""
    ANY = "any"
    """When any of them has ended; it gets one result."""


ALL, ANY = _Await.ALL, _Await.ANY


@dataclass(frozen=True)
class Batch:
    """What an algorithm asks for: segments to run, and trials that it stops for good.

    With the default of `awaits`, or with one trial named (a sliding window), an algorithm cannot
    see which worker was faster. With several, or `ANY`, the order of arrival shows: then it decides
    the same in any order, or is asynchronous; a resumed search repeats the order in any case.
    """

    run: tuple[Segment, ...]
    stop: tuple[TrialId, ...] = ()
    awaits: _Await | tuple[TrialId, ...] = ALL
    """When to ask again: once all that run have ended; once any of them has; or once one of these
    trials has. They may be of earlier batches."""


@dataclass(frozen=True)
class Group:
    """What a worker is given: mostly one segment."""

    segments: tuple[Segment, ...]
    packed: int = 1
    """Slots of the pack that they are trained in; 1 for a segment by itself."""
