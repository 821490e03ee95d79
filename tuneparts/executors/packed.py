"""Executes a pack: segments of several trials, trained together as the lanes of one model.

Every lane has its own execution, with its log, rows and checkpoints. Only training is common.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from tuneparts.errors import DivergedError, HangError
from tuneparts.executors.usage import Usage
from tuneparts.executors.watchdog import limit
from tuneparts.executors.worker import Report, SegmentExecution, TrialSetting
from tuneparts.search.checkpoints import CheckpointStore
from tuneparts.search.segment import Segment
from tuneparts.search.spec import method_config
from tuneparts.search.storage import Folder
from tuneparts.training.learner import Learner, Pack


def execution_of(
    segment: Segment, setting: TrialSetting, **options: Any
) -> "SegmentExecution | PackExecution":
    """The execution of a segment, or of a pack.

    Args:
        segment: what is to run.
        setting: what all trials of the search share.
        options: as of `SegmentExecution`.
    """
    made = PackExecution if segment.lanes else SegmentExecution
    return made(segment, setting, **options)


class PackExecution:
    """A pack under way; each `step` is one interval of the lanes that are furthest behind.

    Checkpoints of lanes are written one after another, so that after a crash some may be an
    interval ahead. The others catch up first.
    """

    def __init__(self, segment: Segment, setting: TrialSetting, **options: Any) -> None:
        self._segment = segment
        self._setting = setting
        self._lanes = [SegmentExecution(lane, setting, **options) for lane in segment.lanes]
        self._checkpoints = CheckpointStore(Folder(setting.storage))
        self._ended = set(segment.over)
        """Lanes that have said their last word."""
        self._learners: list[Learner] = []
        self._pack: Pack | None = None

    def step(self) -> Report:
        """Train for one interval; the first step also builds the learners.

        A pack that fails as a whole, for want of memory say, says so in its own `failure`.

        Raises:
            StorageError: The storage did not answer. The pack can be executed again.
        """
        live = [number for number in range(len(self._lanes)) if number not in self._ended]
        try:
            with ExitStack() as stack:
                stack.enter_context(self._lanes[live[0]].log.listen())
                stack.enter_context(self._setting.code.importable())
                pack = self._pack or self._build()
                failures = self._advance(pack, live)
            for number in live:
                self._lanes[number].log.keep()
            found = {number: self._report(number, failures.get(number)) for number in live}
        except Exception as error:
            return self._failed(error, live)
        self._ended |= {number for number, report in found.items() if report.done}
        reports = [found.get(number, Report()) for number in range(len(self._lanes))]
        return Report(lanes=reports, done=len(self._ended) == len(self._lanes))

    def _build(self) -> Pack:
        self._learners = [
            lane.fresh() if number in self._ended else lane.build()
            for number, lane in enumerate(self._lanes)
        ]
        self._pack = method_config(self._segment.config).pack(self._learners)
        return self._pack

    def _failed(self, error: Exception, live: Sequence[int]) -> Report:
        report = self._lanes[live[0]].failed(error)
        if report.failure is not None:
            for number in live:
                log = self._lanes[number].log
                log.add(f"its pack failed, so it is trained alone: {report.failure}")
                log.keep()
        return report

    def _report(self, number: int, failure: DivergedError | None) -> Report:
        lane = self._lanes[number]
        return lane.reported() if failure is None else lane.failed(failure)

    def _advance(self, pack: Pack, live: Sequence[int]) -> dict[int, DivergedError]:
        """Train, and keep what came of it; returns the lanes that diverged."""
        waiting = [number for number in live if not self._lanes[number].is_over]
        if not waiting:
            return {}
        least = min(self._learners[number].passes for number in waiting)
        training = [number for number in waiting if self._learners[number].passes == least]
        seconds = self._setting.interval_limit
        if self._checkpoints.has_hung(self._segment, least):
            raise HangError(
                f"an interval of a pack ends within {seconds:g} s, but the one after {least} "
                "passes did not; its trials are trained one by one."
            )
        usage = Usage() if self._setting.system_metrics else None
        start = time.perf_counter()
        with limit(seconds, lambda: self._checkpoints.note_hang(self._segment, least)):
            found = pack.advance(training)
        share = (time.perf_counter() - start) / len(training)
        used = usage.metrics() if usage is not None else {}
        failures = {}
        for number in training:
            metrics = found[number]
            if isinstance(metrics, DivergedError):
                failures[number] = metrics
            else:
                state = pack.state_dict(number)
                self._lanes[number].keep({**metrics, **used}, share, state)
        return failures
