"""The segments that may run now, in the order in which they should.

What other trials wait for goes first, so that long chains of adaptive arms do not run alone at the
end. The order changes no result, unless an algorithm is asynchronous.
"""

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Container
from dataclasses import dataclass, field
from typing import TypeAlias

from tuneparts.search.segment import Segment
from tuneparts.search.spec import Search

_Rank: TypeAlias = tuple[bool, int, int, int]
"""Whether no trial waits for it, minus the steps that wait for it, minus those that its trial has
spent, order of arrival."""

_MOST = 2**62
"""More steps than any chain has."""


@dataclass(frozen=True, order=True)
class Waiting:
    """Segments of one arm that may be taken now."""

    rank: _Rank
    """Of the first of them; a smaller one goes first."""
    arm: str = field(compare=False)
    count: int = field(compare=False)


class _Queue:
    """Segments that wait for a worker, and how many may run at once, in the search and per arm."""

    def __init__(self, search: Search) -> None:
        self._after = _steps_after(search)
        self._is_adaptive = {arm.name: arm.algorithm.is_adaptive for arm in search.arms}
        self._most = search.at_once
        self._most_of = {arm.name: arm.at_once for arm in search.arms}
        self._heaps: dict[str, list[tuple[_Rank, Segment]]] = defaultdict(list)
        self._running: Counter[str] = Counter()
        self._arrivals = itertools.count()

    def add(self, segment: Segment, *, chain: int) -> None:
        """Add a segment; `chain` is the steps in a row from its start to the end of its seed."""
        arm = segment.trial.arm
        is_waited_for = self._is_adaptive[arm] or self._after[arm] > 0
        arrival = next(self._arrivals)
        rank = (not is_waited_for, -chain - self._after[arm], -segment.start, arrival)
        heapq.heappush(self._heaps[arm], (rank, segment))

    def put_back(self, segment: Segment) -> None:
        """Put back a segment that was taken; it is the next to run."""
        self.end(segment)
        rank = (False, -_MOST, 0, next(self._arrivals))
        heapq.heappush(self._heaps[segment.trial.arm], (rank, segment))

    def take(self, arms: Container[str] | None = None) -> Segment | None:
        """Take the first segment, of these arms only if they are given; None if there is none."""
        for waiting in self.waiting():
            if arms is None or waiting.arm in arms:
                self._running[waiting.arm] += 1
                return heapq.heappop(self._heaps[waiting.arm])[1]
        return None

    def remove(self, segment: Segment) -> None:
        """Forget a segment, whether it waits or was taken."""
        heap = self._heaps[segment.trial.arm]
        left = [entry for entry in heap if entry[1] is not segment]
        if len(left) == len(heap):
            self.end(segment)
        heap[:] = left
        heapq.heapify(heap)

    def end(self, segment: Segment) -> None:
        """Note that a segment that was taken runs no more."""
        self._running[segment.trial.arm] -= 1

    def at_work(self) -> dict[str, int]:
        """Arm -> how many of its segments are taken now."""
        return {arm: self._running[arm] for arm in self._most_of}

    def waiting(self) -> list[Waiting]:
        """List what may be taken now, arm by arm, the first segment's arm first."""
        left = None if self._most is None else self._most - self._running.total()
        found = []
        for arm, heap in self._heaps.items():
            most = self._most_of[arm]
            room = None if most is None else most - self._running[arm]
            count = min(n for n in (len(heap), room, left) if n is not None)
            if count > 0:
                found.append(Waiting(heap[0][0], arm, count))
        return sorted(found)


def _steps_after(search: Search) -> dict[str, int]:
    """Arm -> the steps that run one after another in arms that take from it, and so on."""
    after = {arm.name: 0 for arm in search.arms}
    for arm in reversed(search.arms):  # a source arm stands before those that take from it
        if arm.source is not None:
            chain = arm.cost.sequential + after[arm.name]
            after[arm.source] = max(after[arm.source], chain)
    return after
