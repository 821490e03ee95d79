"""The loop of a search that runs: hand out what may run, pass on what comes back, end what is late.

Executors differ in their `Pool`: this process, processes of this machine, or Ray tasks.
"""

import itertools
import json
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tuneparts.core.errors import HangError, StorageError, WorkerError
from tuneparts.executors.logs import _TrialLog
from tuneparts.executors.worker import Report
from tuneparts.search.arm import DATA_KEY, method_config
from tuneparts.search.events import TrialId
from tuneparts.search.journal import Journal
from tuneparts.search.plan import SEE_LOG, WORKER_DIED, Plan
from tuneparts.search.segment import Group, Segment
from tuneparts.search.storage import Folder
from tuneparts.training.config import SupervisedMethod

_PAUSE = 1.0
"""Seconds before storage that did not answer is tried again."""
_MOST_FAILED_STARTS = 5
"""How often in a row jobs may fail before they begin."""
MULTIPLE = 10.0
"""How many times the longest interval of the other trials an interval may take."""
FLOOR = 600.0
"""Seconds that every interval may take: to build a learner and to read its data is part of it."""
FEWEST = 3
"""Intervals of other trials that must be known."""


@dataclass(eq=False)
class Job:
    """A group of segments, mostly one, that an executor was given."""

    group: Group
    has_begun: bool = False
    since: float = field(default_factory=time.monotonic)
    """When it was submitted, began or last reported."""


class Pool(Protocol):
    """Where jobs run."""

    storage: str
    """Where checkpoints and logs are."""

    def open_arms(self, jobs: Sequence[Job]) -> Container[str] | None:
        """The arms of which another job may be submitted besides these; None for all."""

    def submit(self, group: Group) -> Job:
        """Start a job, or queue it."""

    def wait(self, jobs: Sequence[Job]) -> Iterable[tuple[Job, list[Report] | Exception]]:
        """Wait a second at most; yields what jobs report, or why one was lost.

        A report is a list with an item for each segment; an empty one says that the job has begun.
        """

    def end(self, job: Job) -> None:
        """End a job with its process; what must survive is in the checkpoint store."""


class Groups:
    """Hands out the segments of a plan to workers, in packs where their arms ask for it.

    A trial has the slot `index % packed` of its pack. Its numbers do not depend on the other slots;
    only a trial whose pack failed goes on by itself, with other rounding.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._alone: set[TrialId] = set()
        """Trials whose pack failed or lost its process: they are not packed again."""

    def take(self, arms: Container[str] | None = None) -> Group | None:
        """Take what a worker is to do next, of these arms if given; None while there is nothing."""
        plan, first = self.plan, self.plan.next(arms)
        if first is None:
            return None
        packed = plan.search.arm(first.trial.arm).packed
        if packed == 1 or first.trial in self._alone:
            return Group((first,))
        found, others = {first.trial.index % packed: first}, list[Segment]()
        while len(found) < packed and len(others) < packed:
            segment = plan.next({first.trial.arm})
            if segment is None:
                break
            slot = segment.trial.index % packed
            if slot in found or segment.trial in self._alone or _key(segment) != _key(first):
                others.append(segment)
            else:
                found[slot] = segment
        for segment in others:
            plan.give_back(segment)
        return Group(tuple(found.values()), packed)

    def started(self, group: Group) -> None:
        for segment in group.segments:
            self.plan.started(segment)

    def is_over(self, group: Group) -> bool:
        return all(map(self.plan.is_over, group.segments))

    def lost(self, group: Group, what: str = WORKER_DIED, why: str = SEE_LOG) -> bool:
        """Queue a group again that lost its worker; returns whether it is. See `Plan.lost`."""
        if group.packed == 1:
            return self.plan.lost(group.segments[0], what, why)
        for segment in group.segments:  # one of them may be to blame, and is then alone
            self.give_back_alone(segment)
        return True

    def give_back_alone(self, segment: Segment) -> None:
        """Queue a segment of a pack again, to be trained by itself."""
        if not self.plan.is_over(segment):
            self._alone.add(segment.trial)
            self.plan.give_back(segment)


def drive(plan: Plan, pool: Pool) -> Iterator[Report]:
    """Run a plan to its end, and yield each report after it was recorded."""
    groups, jobs, failed = Groups(plan), list[Job](), list[float]()

    def end(ended: Sequence[Job]) -> None:
        for job in ended:
            jobs.remove(job)
            pool.end(job)

    try:
        while not plan.done:
            plan.look()
            end([job for job in jobs if groups.is_over(job.group)])
            while (group := groups.take(pool.open_arms(jobs))) is not None:
                jobs.append(pool.submit(group))
                if jobs[-1].has_begun:
                    groups.started(group)
            for job, news in pool.wait(jobs):
                if isinstance(news, Exception):
                    jobs.remove(job)
                    _lose(groups, job, news, failed)
                    continue
                if not job.has_begun:
                    job.has_begun = True
                    failed.clear()
                    groups.started(job.group)
                job.since = time.monotonic()
                if any(report.leave for report in news):
                    pool.end(job)
                if news and all(report.done for report in news):
                    jobs.remove(job)
                _deliver(groups, job.group, news)
                yield from news
            end([job for job in jobs if job.has_begun and _gives_up(groups, job, pool.storage)])
    finally:
        end(list(jobs))


def _lose(groups: Groups, job: Job, error: Exception, failed: list[float]) -> None:
    """Queue a job again that lost its process or its storage, or whose process did not start.

    `failed` are the times of jobs in a row that did not.
    """
    if job.has_begun and isinstance(error, StorageError):
        if groups.lost(job.group, "the storage failed", f": {error}"):
            time.sleep(_PAUSE)
    elif job.has_begun:
        groups.lost(job.group)
    else:
        for segment in job.group.segments:
            if not groups.plan.is_over(segment):
                groups.plan.give_back(segment)
        if not failed or job.since >= failed[-1]:  # several may fail for one reason
            failed.append(time.monotonic())
        if len(failed) > _MOST_FAILED_STARTS:
            raise WorkerError(f"workers did not start {len(failed)} times in a row: {error}")


def _deliver(groups: Groups, group: Group, reports: Sequence[Report]) -> None:
    """Record what a worker reports of each segment; nothing when it has just begun."""
    for segment, report in zip(group.segments, reports, strict=False):
        if report.disk_full is not None:
            raise StorageError(
                f"results and checkpoints need space, but: {report.disk_full}. Make space, then "
                "run `tuneparts resume`; nothing is lost."
            )
        if report.alone:
            groups.give_back_alone(segment)
            continue
        groups.plan.report(segment, report.rows)
        if report.done:
            groups.plan.complete(segment, finished=report.finished, failure=report.failure)


def _gives_up(groups: Groups, job: Job, storage: str) -> bool:
    """Give up a job that has not reported for far too long; returns whether it did."""
    seconds = (time.monotonic() - job.since) / len(job.group.segments)
    late = overdue(groups.plan.journal, job.group.segments[0], seconds, storage)
    if late is not None and job.group.packed == 1:
        _deliver(groups, job.group, [late])
    elif late is not None:
        groups.lost(job.group)
    return late is not None


def overdue(journal: Journal, segment: Segment, seconds: float, storage: str) -> Report | None:
    """The report of a segment that is to be given up; None if it may go on.

    What the other trials of its arm took says sooner than the limit that something is wrong.
    """
    if seconds < FLOOR:
        return None
    known: list[float] = []
    for trial, record in journal.trials.items():
        if trial.arm == segment.trial.arm and trial != segment.trial:
            rows = [record.rows[step].metrics for step in sorted(record.rows)]
            spent = [0.0, *(row.get("cost/seconds", 0.0) for row in rows)]
            known += [after - before for before, after in itertools.pairwise(spent)]
    limit = max(FLOOR, MULTIPLE * max(known, default=0.0))
    if len(known) < FEWEST or seconds < limit:
        return None
    error = HangError(
        f"an interval of `{segment.trial.arm}` ends within {limit:.0f} s, which is {MULTIPLE:g} "
        "times the longest of its other trials and ten minutes at least, but this one did not."
    )
    log = _TrialLog(Folder(storage), segment.trial)
    log.add(str(error))
    log.keep()
    return Report(done=True, failure=f"{type(error).__name__}: {error}")


def _key(segment: Segment) -> str:
    """What the segments of a pack have in common."""
    from tuneparts.training.pack import pack_key  # needs torch

    config = method_config(segment.config)
    assert isinstance(config, SupervisedMethod)
    bounds = [segment.trial.seed, segment.round, segment.start, segment.until]
    return json.dumps([*bounds, segment.config.get(DATA_KEY), pack_key(config)], sort_keys=True)
