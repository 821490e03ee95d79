"""The whole search as a source of segments: what may run now, given what has happened.

Every (arm, seed) is a generator of batches. The plan advances a generator when its batch has
ended and hands out segments in a fixed order. What the journal already holds is not run again,
so a plan made from a journal continues where the driver died.
"""

import dataclasses
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tuneparts.errors import ConfigError
from tuneparts.journal import (
    Event,
    Journal,
    Observer,
    Outcome,
    Row,
    TrialEnded,
    TrialId,
    TrialStarted,
    tell,
)
from tuneparts.schema import selection_metric
from tuneparts.search import algorithms
from tuneparts.search.algorithms import Proposals
from tuneparts.search.segment import Batch, Result, Segment
from tuneparts.search.selection import best_index
from tuneparts.search.spec import Arm, Search


@dataclass
class _Replicate:
    """One (arm, seed) under way."""

    arm: Arm
    seed: int
    proposals: Proposals | None = None
    running: dict[TrialId, Segment] = field(default_factory=dict)
    results: dict[TrialId, Result] = field(default_factory=dict)
    done: bool = False


class Plan:
    """Segments to run, in order, and the record of how they ended."""

    def __init__(
        self, search: Search, journal: Journal, observers: Sequence[Observer] = ()
    ) -> None:
        self.search = search
        self.journal = journal
        self._observers = observers
        self._metric = selection_metric(search.metric)
        self._ready: deque[Segment] = deque()
        self._replicates = {
            (arm.name, seed): _Replicate(arm, seed)
            for arm in search.arms
            for seed in search.seeds_of(arm)
        }
        for event in journal.events:
            tell(observers, event)
        self._start_what_can()

    @property
    def done(self) -> bool:
        """Whether every replicate has ended."""
        return all(replicate.done for replicate in self._replicates.values())

    def next(self) -> Segment | None:
        """The next segment to run; None while all that remains waits for running ones."""
        return self._ready.popleft() if self._ready else None

    def rows(self, segment: Segment, rows: Iterable[Row]) -> None:
        """Take rows that a running segment reported; known ones are ignored."""
        before = self._seconds_before(segment)
        for row in rows:
            seconds = row.metrics.get("cost/seconds", 0.0) + before
            self._happened(
                dataclasses.replace(row, metrics={**row.metrics, "cost/seconds": seconds})
            )

    def complete(self, segment: Segment, *, finished: bool, failure: str | None = None) -> None:
        """Take the end of a segment."""
        if failure is not None:
            self._end(segment.trial, "failed", failure)
        elif finished:
            self._end(segment.trial, "finished")
        self._settle(segment)
        self._advance(self._replicates[segment.trial.arm, segment.trial.seed])
        self._start_what_can()

    def _start_what_can(self) -> None:
        """Start replicates that wait for nothing; repeats while that frees others."""
        waiting = [r for r in self._replicates.values() if r.proposals is None and not r.done]
        for replicate in waiting:
            leader = replicate.arm.follows
            if leader is None:
                replicate.proposals = algorithms.proposals(
                    replicate.arm, replicate.seed, self._metric
                )
            elif self._replicates[leader, replicate.seed].done:
                replicate.proposals = self._follow(replicate, leader)
            else:
                continue
            first = next(replicate.proposals, None)
            if first is None:
                replicate.done = True
            else:
                self._take(replicate, first)
                self._advance(replicate)

    def _follow(self, replicate: _Replicate, leader: str) -> Proposals:
        """One trial at the hypers of the leader's selected trial; none when the leader failed."""
        found = self.selected(leader, replicate.seed)
        if found is None:
            trial = TrialId(replicate.arm.name, replicate.seed, 0)
            config = replicate.arm.config.model_dump(mode="json")
            self._happened(TrialStarted(trial, config, time.time()))
            self._end(trial, "failed", f"no trial of `{leader}` finished, so there is no hyper.")
            return
        last = self.journal.trials[found].last
        assert last is not None
        hypers = getattr(replicate.arm.config, "hypers", None)
        if hypers is None:
            raise ConfigError(
                f"an arm that follows another takes over its hypers, but the method of "
                f"`{replicate.arm.name}` has none."
            )
        values = {
            name.removeprefix("hyper/"): value
            for name, value in last.metrics.items()
            if name.startswith("hyper/")
        }
        adopted = hypers.at(values).model_dump()
        yield Batch((algorithms.segment(replicate.arm, replicate.seed, 0, {"hypers": adopted}),))

    def selected(self, arm: str, seed: int) -> TrialId | None:
        """The trial of a replicate that selection chooses, among those that finished."""
        finished = {
            trial.index: record.last.metrics.get(self.search.metric)
            for trial, record in self.journal.trials.items()
            if (trial.arm, trial.seed) == (arm, seed)
            and record.end is not None
            and record.end.outcome == "finished"
            and record.last is not None
        }
        index = best_index(finished, self._metric)
        return None if index is None else TrialId(arm, seed, index)

    def _advance(self, replicate: _Replicate) -> None:
        """Hand the results of a batch that is over to the algorithm, and take what it wants."""
        while replicate.proposals is not None and not replicate.running and not replicate.done:
            results, replicate.results = replicate.results, {}
            try:
                self._take(replicate, replicate.proposals.send(results))
            except StopIteration:
                replicate.done = True

    def _take(self, replicate: _Replicate, batch: Batch) -> None:
        """Queue a batch; segments that the journal knows to be over end at once."""
        for trial in batch.stop:
            self._end(trial, "stopped")
        for segment in batch.run:
            replicate.running[segment.trial] = segment
            self._happened(TrialStarted(segment.trial, segment.config, time.time()))
        for segment in batch.run:
            if self._is_over(segment):
                self._settle(segment)
            else:
                self._ready.append(segment)

    def _is_over(self, segment: Segment) -> bool:
        record = self.journal.trials[segment.trial]
        reached = record.at(segment.until) is not None
        if reached and record.end is None and segment.until >= segment.config["passes"]:
            self._end(segment.trial, "finished")
        return reached or (record.end is not None and record.end.outcome != "stopped")

    def _seconds_before(self, segment: Segment) -> float:
        """What earlier rounds took: a worker counts the seconds of its own round only."""
        rows = self.journal.trials[segment.trial].rows
        earlier = [step for step in rows if step <= segment.start]
        return rows[max(earlier)].metrics.get("cost/seconds", 0.0) if earlier else 0.0

    def _settle(self, segment: Segment) -> None:
        """Note how a segment ended; the trial may have gone further, or failed, since then."""
        replicate = self._replicates[segment.trial.arm, segment.trial.seed]
        replicate.running.pop(segment.trial)
        record = self.journal.trials[segment.trial]
        row = record.at(segment.until)
        failure = None
        if row is None and record.end is not None and record.end.outcome == "failed":
            failure = record.end.message
        row = row or record.last
        replicate.results[segment.trial] = Result(row.metrics if row is not None else {}, failure)

    def _end(self, trial: TrialId, outcome: Outcome, message: str = "") -> None:
        self._happened(TrialEnded(trial, outcome, time.time(), message))

    def _happened(self, event: Event) -> None:
        if self.journal.append(event):
            tell(self._observers, event)
