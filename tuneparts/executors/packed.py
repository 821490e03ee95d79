"""Executes groups of segments, passes on what workers report of them, and gives up late ones."""

import dataclasses
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from tuneparts.core.errors import DivergedError, HangError
from tuneparts.executors.logs import TrialLog
from tuneparts.executors.watchdog import Usage, limit
from tuneparts.executors.worker import Report, SegmentExecution, TrialSetting, deliver
from tuneparts.search.checkpoints import CheckpointStore
from tuneparts.search.events import TrialId
from tuneparts.search.groups import Group, Groups
from tuneparts.search.journal import Journal
from tuneparts.search.segment import Segment
from tuneparts.search.storage import Folder
from tuneparts.training.pack import Pack
from tuneparts.training.state import copied

MULTIPLE = 10.0
"""How many times the longest interval of the other trials an interval may take."""
FLOOR = 600.0
"""Seconds that every interval may take: to build a learner and to read its data is part of it."""
FEWEST = 3
"""Intervals of other trials that must be known."""


def deliver_all(groups: Groups, group: Group, reports: Sequence[Report]) -> None:
    """Pass on to the plan what a worker reports of each segment; nothing when it is ready."""
    for segment, report in zip(group.segments, reports, strict=False):
        if report.alone:
            groups.give_back_alone(segment)
        else:
            deliver(groups.plan, segment, report)


def gives_up(groups: Groups, group: Group, seconds: float, storage: str) -> bool:
    """Give up a group that has not reported for far too long; returns whether it has not."""
    share = seconds / len(group.segments)
    late = overdue(groups.plan.journal, group.segments[0], share, storage)
    if late is not None and group.packed == 1:
        deliver_all(groups, group, [late])
    elif late is not None:
        groups.lost(group)
    return late is not None


def overdue(journal: Journal, segment: Segment, seconds: float, storage: str) -> Report | None:
    """The report of a segment that is to be given up; None if it may go on.

    What the other trials of its arm took says much sooner than `TUNEPARTS_INTERVAL_LIMIT` that
    something is wrong. The reason is added to the trial's log.
    """
    if seconds < FLOOR:
        return None
    limit = _limit(journal, segment.trial)
    if limit is None or seconds < limit:
        return None
    error = HangError(
        f"an interval of `{segment.trial.arm}` ends within {limit:.0f} s, which is {MULTIPLE:g} "
        "times the longest of its other trials and ten minutes at least, but this one did not."
    )
    log = TrialLog(Folder(storage), segment.trial)
    log.add(str(error))
    log.keep()
    return Report(done=True, failure=f"{type(error).__name__}: {error}")


def _limit(journal: Journal, trial: TrialId) -> float | None:
    """Seconds that an interval of a trial may take; None while too little is known."""
    known = list(_other_intervals(journal, trial))
    return max(FLOOR, MULTIPLE * max(known)) if len(known) >= FEWEST else None


def _other_intervals(journal: Journal, trial: TrialId) -> Iterator[float]:
    for other, record in journal.trials.items():
        if other.arm == trial.arm and other != trial:
            spent = [
                record.rows[step].metrics.get("cost/seconds", 0.0) for step in sorted(record.rows)
            ]
            yield from (after - before for before, after in itertools.pairwise([0.0, *spent]))


class GroupExecution:
    """A group under way in a worker; each `step` is one interval of the trials furthest behind.

    Every trial keeps its own log, rows and checkpoints, in the form that they have by itself. They
    are written one after another, so that after a crash some may be an interval ahead. The options
    are those of `SegmentExecution`.
    """

    def __init__(self, group: Group, setting: TrialSetting, **options: Any) -> None:
        self._group = group
        self._setting = setting
        self._checkpoints = CheckpointStore(Folder(setting.storage))
        self._segments = {one.trial.index % group.packed: one for one in group.segments}
        self._each = {
            slot: SegmentExecution(segment, setting, **options)
            for slot, segment in self._segments.items()
        }
        self._reports = dict.fromkeys(self._each, Report())
        self._learners: dict[int, Any] = {}
        self._pack: tuple[list[int], Pack] | None = None
        """The slots that train, and their pack."""

    def step(self) -> list[Report]:
        """Train for one interval; returns the last report of each segment.

        Raises:
            StorageError: The storage did not answer. The group can be executed again.
        """
        if self._group.packed == 1:
            return [self._each[0].step()]
        live = {slot: one for slot, one in self._each.items() if not self._reports[slot].done}
        first = next(iter(live.values()))
        try:
            with first.log.listen(), self._setting.code.importable():
                self._learners = self._learners or {s: one.build() for s, one in live.items()}
                diverged = self._advance(live)
            for slot, one in live.items():
                one.log.keep()
                error = diverged.get(slot)
                self._reports[slot] = one.reported() if error is None else one.failed(error)
        except Exception as error:
            whole = first.failed(error)
            if whole.failure is not None:
                whole = dataclasses.replace(whole, rows=(), alone=True)
                for one in live.values():
                    one.log.add(f"its pack failed, so it is trained by itself: {whole.failure}")
                    one.log.keep()
            self._reports |= dict.fromkeys(live, whole)
        return list(self._reports.values())

    def _advance(self, live: Mapping[int, SegmentExecution]) -> dict[int, DivergedError]:
        """Train, and keep what came of it; returns the slots that diverged."""
        waiting = {slot: self._learners[slot] for slot, one in live.items() if not one.is_over}
        if not waiting:
            return {}
        least = min(learner.passes for learner in waiting.values())
        training = {slot: one for slot, one in waiting.items() if one.passes == least}
        if self._pack is None or self._pack[0] != list(training):
            self._pack = list(training), Pack(training, self._group.packed)
        segment, seconds = self._segments[next(iter(training))], self._setting.interval_limit
        if self._checkpoints.has_hung(segment, least, of="pack-"):
            raise HangError(f"the interval of a pack after {least} passes took over {seconds:g} s.")
        usage = Usage() if self._setting.system_metrics else None
        start = time.perf_counter()
        with limit(seconds, lambda: self._checkpoints.note_hang(segment, least, of="pack-")):
            found = self._pack[1].advance()
        share = (time.perf_counter() - start) / len(training)
        used = usage.metrics() if usage is not None else {}
        for slot, metrics in found.items():
            if not isinstance(metrics, DivergedError):
                # A view would be written with the tensor of all slots behind it.
                state = copied(training[slot].state_dict(), Tensor.clone)
                live[slot].keep({**metrics, **used}, share, state)
        return {slot: one for slot, one in found.items() if isinstance(one, DivergedError)}
