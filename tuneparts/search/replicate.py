"""A replicate under way: what its algorithm has asked for, waits for and has got.

No journal, no queue: the plan moves results in here as they come, and asks what is next.
"""

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field

from tuneparts.core import selection
from tuneparts.core.errors import ConfigError
from tuneparts.core.schema import Metric
from tuneparts.core.selection import Best, Selection
from tuneparts.search.algorithms.base import Proposals
from tuneparts.search.arm import Arm
from tuneparts.search.events import ResultTold, TrialEnded, TrialId
from tuneparts.search.segment import ALL, Batch, Result, Segment, _Await
from tuneparts.search.spec import Search
from tuneparts.search.state import TrialRecord


class States:
    """Which trials of a replicate have ended and still need their checkpoints.

    The selected one so far keeps its last state, and a donor keeps its own until it has been
    copied. One that failed keeps it for a second try, and is not known here.
    """

    def __init__(self, *objectives: Metric, selection: Selection | None = None) -> None:
        self._objectives = objectives
        self._selection = selection or Best()
        self._donors: Counter[TrialId] = Counter()
        self._ended: dict[TrialId, tuple[TrialEnded, Mapping[str, float]]] = {}

    def begin(self, segment: Segment) -> None:
        """Note that a segment may run from now on."""
        if segment.donor is not None:
            self._donors[segment.donor] += 1

    def end(self, segment: Segment) -> None:
        """Note that a segment is over."""
        if segment.donor is not None:
            self._donors[segment.donor] -= 1

    def add(self, trial: TrialId, record: TrialRecord) -> None:
        """Note a trial that ended; others, and those that failed, are left alone."""
        if record.end is not None and record.end.outcome != "failed":
            last = record.last
            self._ended[trial] = record.end, {} if last is None else last.metrics

    def __len__(self) -> int:
        return len(self._ended)

    def drop(self) -> list[TrialId]:
        """List the trials whose states are not needed any more, and forget them.

        A trial that neither is selected of those that finished nor in their Pareto front will not
        be selected later.
        """
        finished = {
            trial.index: metrics
            for trial, (end, metrics) in self._ended.items()
            if end.outcome == "finished"
        }
        kept = self._selectable(finished)
        dropped = [
            trial for trial in self._ended if trial.index not in kept and not self._donors[trial]
        ]
        for trial in dropped:
            del self._ended[trial]
        return dropped

    def _selectable(self, finished: Mapping[int, Mapping[str, float]]) -> set[int | None]:
        if not self._selection.is_lasting:
            return set(finished)
        chosen = {self._selection.choose(finished, self._objectives)}
        if len(self._objectives) == 1:
            return chosen
        indices = sorted(finished)
        points = [Result(finished[i]).scores(self._objectives) for i in indices]
        on_front = selection.front(selection.oriented(points, self._objectives))
        return chosen | {i for i, is_on in zip(indices, on_front, strict=True) if is_on}


@dataclass(frozen=True)
class _News:
    """What an algorithm is told next."""

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
    """Segments of which the algorithm has not been told how they ended."""
    _order: dict[tuple[TrialId, int], int] = field(default_factory=dict)
    """Trial and steps -> place in the order in which a journal says that results were told."""
    _heap: list[tuple[float, int, TrialId]] = field(default_factory=list)
    """The trials of `_ended`, and some that were told since; the first to tell first."""
    _arrivals: "itertools.count[int]" = field(default_factory=itertools.count)
    _asked: int = 0
    """Steps of all segments so far."""
    _chain_at_barrier: int = 0

    def repeat(self, told: Iterable[ResultTold]) -> None:
        """Take over from a journal in which order the algorithm got results."""
        self._order = {(event.trial, event.steps): place for place, event in enumerate(told)}

    def start(self, search: Search, metric: Metric) -> Proposals:
        """Make the generator of its algorithm, for one metric or several objectives."""
        algorithm = self.arm.algorithm
        proposals: object = (
            algorithm.front_proposals(self.arm, self.seed, search.all_objectives)
            if search.objectives
            else algorithm.proposals(self.arm, self.seed, metric)
        )
        if not isinstance(proposals, Generator):
            raise ConfigError(
                f"`proposals` of `{algorithm.kind}` returned {proposals!r:.100}, not a generator. "
                "Write `yield Batch(...)` in it."
            )
        return proposals

    def begin(self, batch: Batch) -> dict[TrialId, int]:
        """Take over what the algorithm asks for.

        Returns for each trial the steps that follow one another from there to the replicate's end.
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
        """Note how a segment ended."""
        trial = segment.trial
        self.running.pop(trial)
        self.states.end(segment)
        self._ended[trial] = segment, result
        heapq.heappush(self._heap, (self._place(segment), next(self._arrivals), trial))

    def next_news(self) -> _News | None:
        """Take what the algorithm is to be told now; None while it has to wait."""
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
        """Refuse what an algorithm must not yield, before any of it is written down."""
        owner = self.arm.algorithm.kind
        if not isinstance(batch, Batch):
            raise ConfigError(f"an algorithm yields a Batch, but `{owner}` yielded {batch!r:.100}.")
        trials = [segment.trial for segment in batch.run]
        own = self.arm.name, self.seed
        strays = [trial for trial in trials if (trial.arm, trial.seed) != own]
        doubled = [trial for trial, count in Counter(trials).items() if count > 1]
        if strays or doubled:
            raise ConfigError(
                f"`{owner}` yielded {', '.join(map(str, strays or doubled))}: a batch runs trials "
                f"of its own arm `{self.arm.name}` and seed {self.seed}, each once."
            )
        busy = [t for t in (*trials, *batch.stop) if t in self.running or t in self._ended]
        if busy:
            raise ConfigError(f"`{owner}` did not wait for {', '.join(map(str, busy))}.")
        under_way = {*trials, *self.running, *self._ended}
        awaited = () if isinstance(batch.awaits, _Await) else batch.awaits
        has_none = (batch.awaits is not ALL and not under_way) or batch.awaits == ()
        idle = [str(trial) for trial in awaited if trial not in under_way]
        if has_none or idle:
            named = ", ".join(idle) or "none"
            raise ConfigError(f"an algorithm awaits trials that run, but `{owner}` awaits {named}.")
        return batch

    def _place(self, segment: Segment) -> float:
        return self._order.get((segment.trial, segment.until), math.inf)

    def _first_awaited(self) -> TrialId | None:
        """The trial to tell next: in the order of the journal, then in that of arrival."""
        if isinstance(self._awaits, tuple):
            there = [trial for trial in self._awaits if trial in self._ended]
            return min(there, key=lambda t: self._place(self._ended[t][0]), default=None)
        while self._heap:
            trial = heapq.heappop(self._heap)[2]
            if trial in self._ended:
                return trial
        return None
