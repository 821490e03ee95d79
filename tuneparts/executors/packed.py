"""Packed trials: a worker trains several waiting segments of one arm and seed together.

The plan does not know it: it hands out segments, and gets reports of each by itself. A pack
computes as many slots as its arm says, and a trial has the slot `index % packed`. A slot's numbers
depend on the width of the pack and on the slot, and not on what the others hold; those without a
trial are computed too. So which segments happen to wait together changes no number, and neither
does a driver that was killed and resumed. Only a trial whose pack failed as a whole, or lost its
process, goes on by itself, with other rounding.
"""

import dataclasses
import json
import math
import time
from collections.abc import Container, Mapping, Sequence
from typing import Any

from torch import Tensor

from tuneparts.baselines.packed import Pack, pack_key
from tuneparts.baselines.standard import StandardConfig
from tuneparts.errors import DivergedError, HangError
from tuneparts.executors.stragglers import overdue
from tuneparts.executors.usage import Usage
from tuneparts.executors.watchdog import limit
from tuneparts.executors.worker import Report, SegmentExecution, TrialSetting, deliver
from tuneparts.journal import TrialId
from tuneparts.search.checkpoints import CheckpointStore
from tuneparts.search.plan import SEE_LOG, WORKER_DIED, Plan
from tuneparts.search.queue import Waiting
from tuneparts.search.segment import Segment
from tuneparts.search.spec import DATA_KEY, method_config
from tuneparts.search.storage import Folder
from tuneparts.training.learner import Learner
from tuneparts.training.state import copied


@dataclasses.dataclass(frozen=True)
class Group:
    """What a worker is given: mostly one segment."""

    segments: tuple[Segment, ...]
    packed: int = 1
    """Slots of the pack that they are trained in; 1 for a segment by itself."""


class Groups:
    """Hands out the segments of a plan to workers, in packs where their arms ask for it."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._alone: set[TrialId] = set()
        """Trials whose pack failed or lost its process: they are not packed again."""

    def take(self, arms: Container[str] | None = None) -> Group | None:
        """Take what a worker is to do next, of these arms if given; None while there is nothing."""
        plan, first = self._plan, self._plan.next(arms)
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

    def num_of(self, waiting: Waiting) -> int:
        """How many groups the waiting segments of an arm are, if all of them can be packed."""
        return math.ceil(waiting.count / self._plan.search.arm(waiting.arm).packed)

    def started(self, group: Group) -> None:
        """Record that a worker has taken up a group."""
        for segment in group.segments:
            self._plan.started(segment)

    def is_over(self, group: Group) -> bool:
        """Whether all of a group is to be given up."""
        return all(map(self._plan.is_over, group.segments))

    def lost(self, group: Group, what: str = WORKER_DIED, why: str = SEE_LOG) -> bool:
        """Queue a group again that lost its worker; returns whether it is. See `Plan.lost`."""
        if group.packed == 1:
            return self._plan.lost(group.segments[0], what, why)
        # One of its trials may be to blame, and is then alone.
        self.deliver(group, [Report(done=True, alone=True)] * len(group.segments))
        return True

    def deliver(self, group: Group, reports: Sequence[Report]) -> None:
        """Pass on to the plan what a worker reports of each segment; nothing when it is ready."""
        for segment, report in zip(group.segments, reports, strict=False):
            if not report.alone:
                deliver(self._plan, segment, report)
            elif not self._plan.is_over(segment):
                self._alone.add(segment.trial)
                self._plan.give_back(segment)

    def gives_up(self, group: Group, seconds: float, storage: str) -> bool:
        """Give up a group that has not reported for far too long; returns whether it has not."""
        first, share = group.segments[0], seconds / len(group.segments)
        late = overdue(self._plan.journal, first, share, storage)
        if late is not None and group.packed == 1:
            self.deliver(group, [late])
        elif late is not None:
            self.lost(group)
        return late is not None


def _key(segment: Segment) -> str:
    """What the segments of a pack have in common."""
    config = method_config(segment.config)
    assert isinstance(config, StandardConfig)
    bounds = [segment.trial.seed, segment.round, segment.start, segment.until]
    return json.dumps([*bounds, segment.config.get(DATA_KEY), pack_key(config)], sort_keys=True)


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
        self._learners: dict[int, Learner] = {}
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
