"""Decides which segments of a search may run now, given what has happened so far.

A replicate is one seed of one arm, and its algorithm is a generator of batches of segments. What
the journal already holds is not run again: a plan made from it continues where the driver died.
"""

import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path

from tuneparts.core.schema import selection_metric
from tuneparts.search import _source, events, stopping
from tuneparts.search.cleaning import States
from tuneparts.search.events import Event, Observer, Row, TrialEnded, TrialId, TrialVoided
from tuneparts.search.journal import Journal
from tuneparts.search.queue import _Queue
from tuneparts.search.replicate import Replicate
from tuneparts.search.segment import Batch, Result, Segment
from tuneparts.search.spec import Search

WORKER_DIED = "the worker process died"
SEE_LOG = "; what it said last is in the trial's log."


class Plan:
    """The segments of a search in the order in which they should run, and how they ended.

    An executor takes segments with `next`, calls `started` when a worker has one, and `report` and
    `complete` with what came of them. Every event is in the journal before observers get it.
    """

    def __init__(
        self,
        search: Search,
        journal: Journal,
        observers: Sequence[Observer] = (),
        *,
        forget: Callable[[TrialId], None] | None = None,
        folder: Path | None = None,
    ) -> None:
        """Replay a journal, and continue from there.

        Observers get every event, past ones first; `forget` is called with each trial whose
        checkpoints are not needed any more. Other processes leave requests to stop in `folder`.
        """
        self.search, self.journal = search, journal
        self._observers, self._forget, self._folder = observers, forget, folder
        self._metric = selection_metric(search.metric)
        self.queue = _Queue(search)
        self._losses: Counter[TrialId] = Counter()
        """Workers that a trial lost since its last new row."""
        self.replicates = {
            (arm.name, seed): Replicate(
                arm, seed, States(*search.all_objectives, selection=search.selection)
            )
            for arm in search.arms
            for seed in search.seeds_of(arm)
        }
        self._limits = stopping._Limits(search.stop, self._metric, journal.state)
        for key, replicate in self.replicates.items():
            replicate.repeat(journal.state.told.get(key, ()))
        for event in journal.events:
            for observer in observers:
                observer.on_event(event)
        for replicate in self.replicates.values():
            self._repeat_stop(replicate)
        self._start_replicates()
        whole = next((stop for stop in journal.stops.values() if stop.is_all), None)
        if whole is not None:  # a crash may have come before all were stopped
            self.stop(whole.message)
        self.look()
        for replicate in self.replicates.values():
            self._release_states(replicate)

    @property
    def done(self) -> bool:
        return all(replicate.done for replicate in self.replicates.values())

    def next(self, arms: Container[str] | None = None) -> Segment | None:
        """Take the next segment to run, of these arms only if given; None if none can run now."""
        return self.queue.take(arms)

    def give_back(self, segment: Segment) -> None:
        """Put back a segment whose worker was lost; it is the next to run."""
        self.queue.put_back(segment)

    def started(self, segment: Segment) -> None:
        """Record that a worker has taken up a segment; only the first time of a trial is news."""
        if not self.is_over(segment):
            self._record(events.TrialRunning(segment.trial, time.time()))

    def report(self, segment: Segment, rows: Iterable[Mapping[str, float]]) -> None:
        """Record the metrics of intervals of a running segment; rows already known are ignored.

        A row that is news shows that the trial gets on: worker losses before it are forgotten.
        """
        # A worker counts the seconds of its own round only; a trial's are those of all rounds.
        if self.is_over(segment):
            return
        known = self.journal.trials[segment.trial].rows
        last = max((step for step in known if step <= segment.start), default=None)
        before = 0.0 if last is None else known[last].metrics.get("cost/seconds", 0.0)
        for metrics in rows:
            seconds = metrics.get("cost/seconds", 0.0) + before
            row = {**metrics, "cost/seconds": seconds}
            made = Row(segment.trial, int(row["cost/steps"]), row, time.time())
            if self._record(made):
                del self._losses[segment.trial]

    def complete(self, segment: Segment, *, finished: bool, failure: str | None = None) -> None:
        """Record that a segment has ended, and queue what may run now.

        `finished` says that its trial has spent its budget, `failure` why it cannot go on; without
        a finite score it has failed in any case.
        """
        if self.is_over(segment):
            return
        failure = failure or self._unscored(segment)
        if failure is not None:
            self._fail(segment, failure)
        elif finished:
            self._end(segment.trial, "finished")
        self.queue.end(segment)
        self._collect_result(segment)
        replicate = self.replicates[segment.trial.arm, segment.trial.seed]
        self.look()
        self._ask_algorithm(replicate)
        self._start_replicates()
        self._release_states(replicate)

    def lost(self, segment: Segment, what: str = WORKER_DIED, why: str = SEE_LOG) -> bool:
        """Record that a segment ended through no fault of its trial, and queue it again.

        Once the `max_failures` of its arm are exceeded without a new row in between, the trial has
        failed, with the message `{what} 4 times{why}`. Returns whether the segment is queued again.
        """
        if self.is_over(segment):
            return False
        self._losses[segment.trial] += 1
        count = self._losses[segment.trial]
        most = self.search.arm(segment.trial.arm).max_failures
        if count <= (self.search.max_failures if most is None else most):
            self.give_back(segment)
            return True
        since = " since its last row" if self.journal.trials[segment.trial].rows else ""
        self.complete(segment, finished=False, failure=f"{what} {count} times{since}{why}")
        return False

    def look(self) -> None:
        """Stop all if asked for or out of time; executors call it every second or so."""
        asked = None if self._folder is None else stopping._requested(self._folder)
        message = asked or self._limits.exceeded()
        if message is not None:
            self.stop(message)
        if asked is not None and self._folder is not None:
            (self._folder / stopping.REQUEST).unlink(missing_ok=True)  # dealt with

    def stop(self, message: str) -> None:
        for (arm, seed), replicate in self.replicates.items():
            if not replicate.done:
                known = [trial.index for trial in self.journal.state.replicate(arm, seed)]
                first = TrialId(arm, seed, max(known, default=-1) + 1)
                self._stop(replicate, message, first, is_all=True)

    def is_over(self, segment: Segment) -> bool:
        """Whether a segment that was taken is to be given up, and what it reports is ignored."""
        replicate = self.replicates[segment.trial.arm, segment.trial.seed]
        return replicate.running.get(segment.trial) != segment

    def _stop(
        self, replicate: Replicate, message: str, first: TrialId, *, is_all: bool = False
    ) -> None:
        """Stop a seed of an arm for good; its trials from the given one on do not count."""
        self._record(events.ReplicateStopped(first, time.time(), message, is_all))
        self._repeat_stop(replicate)
        self._release_states(replicate)

    def _is_done(self, replicate: Replicate) -> bool:
        """Whether a seed runs nothing more; stops it if a trial has reached the target."""
        arm, seed = replicate.arm, replicate.seed
        end = None if replicate.done else self._limits.reached(arm.name, seed)
        if end is not None and end[0] < arm.trials_per_seed:  # else there is nothing to stop
            self._stop(replicate, end[1], TrialId(arm.name, seed, end[0]))
        return replicate.done

    def _repeat_stop(self, replicate: Replicate) -> None:
        """Do what follows from a stop that the journal holds, also if a crash came in between."""
        key = replicate.arm.name, replicate.seed
        stop = self.journal.stops.get(key)
        if stop is None:
            return
        for segment in replicate.running.values():
            self.queue.remove(segment)
        replicate.running.clear()
        replicate.done = True
        for trial, record in list(self.journal.state.replicate(*key).items()):
            if record.end is None and record.start is not None:
                self._end(trial, "stopped", stop.message)
            elif record.end is not None and trial.index >= stop.trial.index:
                self._record(TrialVoided(trial, time.time(), stop.message))
            replicate.states.add(trial, record)

    def selected(self, arm: str, seed: int) -> TrialId | None:
        """The trial of a seed that selection chooses, among those that finished."""
        finished = {
            trial.index: record.last.metrics
            for trial, record in self.journal.state.replicate(arm, seed).items()
            if record.status == "finished" and record.last is not None
        }
        index = self.search.selection.choose(finished, self.search.all_objectives)
        return None if index is None else TrialId(arm, seed, index)

    def _start_replicates(self) -> None:
        """Start the algorithms that wait for no source arm, which comes before its arms."""
        waiting = [r for r in self.replicates.values() if r.proposals is None and not r.done]
        for replicate in waiting:
            source = replicate.arm.source
            if source is None:
                algorithm, objectives = replicate.arm.algorithm, self.search.all_objectives
                replicate.proposals = algorithm._started(replicate.arm, replicate.seed, objectives)
            elif self.replicates[source, replicate.seed].done:
                selected = self.selected(source, replicate.seed)
                found = None if selected is None else self.journal.trials[selected]
                own = self.journal.state.replicate(replicate.arm.name, replicate.seed)
                replicate.proposals = _source.proposals(
                    replicate, self.search.arm(source), found, own, self._record
                )
            else:
                continue
            self._queue_batch(replicate, next(replicate.proposals, None))
            self._ask_algorithm(replicate)

    def _ask_algorithm(self, replicate: Replicate) -> None:
        """Give an algorithm the results that it waits for, and queue what it asks for next."""
        while not self._is_done(replicate) and (news := replicate.next_news()) is not None:
            if news.told is not None:
                self._record(events.ResultTold(news.told.trial, news.told.until, time.time()))
            assert replicate.proposals is not None
            try:
                batch = replicate.proposals.send(news.results)
            except StopIteration:
                batch = None
            else:
                replicate.used.update(news.results)
            self._queue_batch(replicate, batch)
        if replicate.is_exhausted and not replicate.running and not replicate.done:
            for trial, message in replicate.gives_up().items():
                self._end(trial, "failed", message)
            replicate.done = True

    def _queue_batch(self, replicate: Replicate, batch: Batch | None) -> None:
        """Queue the segments of a batch that have not ended; None says that there is no other."""
        if batch is None:
            replicate.is_exhausted = True
        else:
            replicate.check(batch)
        batch = batch or Batch(())
        for trial in batch.stop:
            self._end(trial, "stopped")
        for trial, message in replicate.gives_up(keep=batch.run).items():
            self._end(trial, "failed", message)
        if batch.run or batch.stop:
            # What was decided on must not be lost once workers build on it.
            self.journal.sync()
        chains = replicate.begin(batch)
        for segment in batch.run:
            donor = None if segment.donor is None else str(segment.donor)
            start = events.TrialStarted(
                segment.trial, segment.config, time.time(), segment.start, donor
            )
            self._record(start)
        for segment in batch.run:
            if self._has_ended(segment):
                self._collect_result(segment)
            else:
                self.queue.add(segment, chain=chains[segment.trial])

    def _has_ended(self, segment: Segment) -> bool:
        """Whether the journal shows that a segment has ended."""
        record = self.journal.trials[segment.trial]
        is_reached = record.at(segment.until) is not None
        if is_reached and record.end is None and segment.start not in record.failed_rounds:
            # The driver may have died between the last row and what follows from it.
            failure = self._unscored(segment) if record.last == record.at(segment.until) else None
            if failure is not None:
                self._fail(segment, failure)
            elif segment.until >= segment.config["steps"]:
                self._end(segment.trial, "finished")
        is_failed = segment.start in record.failed_rounds
        return is_failed or is_reached or record.end is not None

    def _collect_result(self, segment: Segment) -> None:
        """Read from the journal how a segment ended, and keep it for the algorithm.

        When a journal is replayed the trial may have gone further or failed since, so the result
        is the row at which this segment ended, not the trial's last.
        """
        replicate = self.replicates[segment.trial.arm, segment.trial.seed]
        record = self.journal.trials[segment.trial]
        replicate.states.add(segment.trial, record)
        row = record.at(segment.until)
        failure = record.failed_rounds.get(segment.start)
        if failure is not None and record.end is None:
            replicate.failed[segment.trial] = failure
        end = record.end
        if end is not None and end.outcome == "failed" and (row is None or self._unscored(segment)):
            failure = end.message
        row = row or record.last
        replicate.end(segment, Result(row.metrics if row is not None else {}, failure))

    def _release_states(self, replicate: Replicate) -> None:
        """Say which trials need no checkpoint any more, once their ends are on the disk."""
        if self._forget is None or len(replicate.states) == 0:
            return
        if replicate.done:
            self.journal.sync()
        if self.journal.is_synced:
            for trial in replicate.states.drop():
                self._forget(trial)

    def _fail(self, segment: Segment, failure: str) -> None:
        """End a trial, or only its round where its algorithm may go on from another's state."""
        is_last = segment.until >= segment.config["steps"]
        if self.search.arm(segment.trial.arm).algorithm.replaces_failed and not is_last:
            self._record(events._RoundFailed(segment.trial, segment.start, failure, time.time()))
        else:
            self._end(segment.trial, "failed", failure)

    def _unscored(self, segment: Segment) -> str | None:
        """Why the row that a segment ended with cannot be compared with others, if it cannot."""
        record = self.journal.trials[segment.trial]
        return self.search.why_unscored(segment.trial.arm, record.at(segment.until) or record.last)

    def _record(self, event: Event) -> bool:
        """Write an event to the journal, then pass it on to observers; returns if it was news."""
        is_news = self.journal.append(event)
        if isinstance(event, TrialEnded | TrialVoided):
            trial = event.trial
            self.replicates[trial.arm, trial.seed].states.add(trial, self.journal.trials[trial])
        for observer in self._observers if is_news else ():
            observer.on_event(event)
        return is_news

    def _end(self, trial: TrialId, outcome: events.Outcome, message: str = "") -> None:
        self._record(TrialEnded(trial, outcome, time.time(), message))
