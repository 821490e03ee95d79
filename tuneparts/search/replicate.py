"""One seed of an arm under way: what its algorithm has asked for, waits for and has got."""

import heapq
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from tuneparts.search.algorithms.base import Proposals, _checked
from tuneparts.search.arm import Arm
from tuneparts.search.cleaning import States
from tuneparts.search.events import ResultTold, TrialId
from tuneparts.search.segment import ALL, Batch, Result, Segment, _Await


@dataclass(frozen=True)
class _News:
    """What an algorithm gets next."""

    results: dict[TrialId, Result]
    told: Segment | None = None
    """The one segment of the results, where another one could have come before it."""


@dataclass
class Replicate:
    """One seed of one arm under way."""

    arm: Arm
    seed: int
    states: States
    proposals: Proposals | None = None
    """The algorithm; None until whatever the arm waits for is there."""
    running: dict[TrialId, Segment] = field(default_factory=dict)
    """Segments that have not ended, queued ones included."""
    failed: dict[TrialId, str] = field(default_factory=dict)
    """Trials that failed and that the algorithm may yet go on with, and why."""
    used: set[TrialId] = field(default_factory=set)
    """Trials by whose newest result the algorithm has gone on."""
    is_exhausted: bool = False
    """Whether the algorithm asks for nothing more."""
    done: bool = False
    _awaits: _Await | tuple[TrialId, ...] = ALL
    _ended: dict[TrialId, tuple[Segment, Result]] = field(default_factory=dict)
    """Segments whose results the algorithm does not have yet."""
    _order: dict[tuple[TrialId, int], int] = field(default_factory=dict)
    """Trial and steps -> place in the order in which the algorithm got results, by the journal."""
    _heap: list[tuple[float, int, TrialId]] = field(default_factory=list)
    """The trials of `_ended`, and some that it got since; the first to pass on comes first."""
    _arrivals: "itertools.count[int]" = field(default_factory=itertools.count)
    _asked: int = 0
    """Steps of all segments so far."""
    _chain_at_barrier: int = 0

    def repeat(self, told: Iterable[ResultTold]) -> None:
        self._order = {(event.trial, event.steps): place for place, event in enumerate(told)}

    def begin(self, batch: Batch) -> dict[TrialId, int]:
        """Take over what the algorithm asks for.

        Returns for each trial the steps that follow one another from there to the end of the seed.
        """
        left = 1 - self._asked / self.arm.cost.expected
        longest = max((one.until - one.start for one in batch.run), default=0)
        chain = max(round(left * self.arm.cost.sequential), longest)
        if not self.running:
            self._chain_at_barrier = chain
        for segment in batch.run:
            self.running[segment.trial] = segment
            self.used.discard(segment.trial)
            self.states.begin(segment)
            self._asked += segment.until - segment.start
        self._awaits = batch.awaits
        # A trial that goes on comes before those that wait for their first turn.
        return {one.trial: self._chain_at_barrier if one.start else chain for one in batch.run}

    def end(self, segment: Segment, result: Result) -> None:
        trial = segment.trial
        self.running.pop(trial)
        self.states.end(segment)
        self._ended[trial] = segment, result
        heapq.heappush(self._heap, (self._place(segment), next(self._arrivals), trial))

    def next_news(self) -> _News | None:
        """Take what the algorithm gets now; None while it has to wait."""
        if self.is_exhausted or self.proposals is None:
            return None
        if self._awaits is ALL:
            if self.running:
                return None
            results = {trial: result for trial, (_, result) in self._ended.items()}
            self._ended.clear()
            self._heap.clear()
            return _News(results)
        trial = self._first_awaited()
        if trial is None:
            return None
        segment, result = self._ended.pop(trial)
        is_open = isinstance(self._awaits, _Await) or len(self._awaits) > 1
        return _News({trial: result}, segment if is_open else None)

    def gives_up(self, keep: Iterable[Segment] = ()) -> dict[TrialId, str]:
        """Take the trials that failed and that the algorithm, which knows, does not go on with."""
        kept = {segment.trial for segment in keep}
        known = {
            t: why for t, why in self.failed.items() if self.is_exhausted or t not in self._ended
        }
        for trial in known:
            del self.failed[trial]
        return {trial: why for trial, why in known.items() if trial not in kept}

    def check(self, batch: object) -> Batch:
        """Refuse what the algorithm must not yield, before any of it is written down."""
        return _checked(batch, self.arm, self.seed, self.running, self._ended)

    def _place(self, segment: Segment) -> float:
        return self._order.get((segment.trial, segment.until), math.inf)

    def _first_awaited(self) -> TrialId | None:
        """The trial that comes next: in the order of the journal, then in that of arrival."""
        if isinstance(self._awaits, tuple):
            there = [trial for trial in self._awaits if trial in self._ended]
            return min(there, key=lambda t: self._place(self._ended[t][0]), default=None)
        while self._heap:
            trial = heapq.heappop(self._heap)[2]
            if trial in self._ended:
                return trial
        return None
