"""Executes a pack: several trials of one arm whose nets are trained as one."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from tuneparts.core.errors import DivergedError
from tuneparts.executors.setting import TrialSetting
from tuneparts.executors.worker import Report, _SegmentExecution
from tuneparts.search.segment import Group
from tuneparts.training.pack import Pack
from tuneparts.training.state import copied


class PackExecution:
    """A pack under way in a worker; each `step` is one interval of the trials furthest behind.

    Every trial keeps its own log, rows and checkpoints; after a crash some may be an interval
    ahead.
    """

    def __init__(self, group: Group, setting: TrialSetting, **options: Any) -> None:
        self._packed, self._setting = group.packed, setting
        self._each = {
            segment.trial.index % group.packed: _SegmentExecution(segment, setting, **options)
            for segment in group.segments
        }
        self._reports = dict.fromkeys(self._each, Report())
        self._learners: dict[int, Any] = {}
        self._pack: tuple[list[int], Pack] | None = None
        """The slots that train, and their pack."""

    def step(self) -> list[Report]:
        """Train for one interval; returns the last report of each segment."""
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

    def _advance(self, live: Mapping[int, _SegmentExecution]) -> dict[int, DivergedError]:
        """Train, and keep what came of it; returns the slots that diverged."""
        waiting = {slot: self._learners[slot] for slot, one in live.items() if not one.is_over}
        if not waiting:
            return {}
        least = min(learner.steps for learner in waiting.values())
        training = {slot: one for slot, one in waiting.items() if one.steps == least}
        if self._pack is None or self._pack[0] != list(training):
            self._pack = list(training), Pack(training, self._packed)
        first = live[next(iter(training))]
        with first.timed(least, of="pack-", shared_by=len(training)) as spent:
            found = self._pack[1].advance()
        diverged = {}
        for slot, metrics in found.items():
            if isinstance(metrics, DivergedError):
                diverged[slot] = metrics
            else:
                # A view would be written with the tensor of all slots behind it.
                state = copied(training[slot].state_dict(), Tensor.clone)
                live[slot].keep({**metrics, **spent}, state)
        return diverged
