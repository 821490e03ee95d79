"""Executes one segment of one trial, in whatever process it is called, without Ray or the plan."""

import os
import platform
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tuneparts.core.errors import CheckpointError, HangError, StorageError, TunepartsError
from tuneparts.core.redaction import redact
from tuneparts.executors._watchdog import Usage, limit, set_threads
from tuneparts.executors.logs import _TrialLog
from tuneparts.executors.setting import TrialSetting, _build_learner
from tuneparts.search.checkpoints import CheckpointStore
from tuneparts.search.segment import Group, Segment
from tuneparts.search.storage import ArtifactStore, Folder, is_disk_full, is_transient
from tuneparts.training.learner import Learner, TaskRunner


@dataclass(frozen=True)
class Report:
    """What a worker says after an interval. Plain values, so that it can cross processes."""

    rows: Sequence[Mapping[str, float]] = ()
    """Metrics of the intervals since the last report."""
    done: bool = False
    """The segment ends with this report."""
    finished: bool = False
    """The learner has spent its whole budget."""
    failure: str | None = None
    """Why the trial cannot go on."""
    disk_full: str | None = None
    """What the disk said; the search has to stop, and no trial is to blame."""
    leave: bool = False
    """The process may be damaged, as a CUDA context is after an error: no other trial in it."""
    alone: bool = False
    """Its pack failed as a whole, and no trial is to blame: it is to be trained by itself."""


def reports_of(group: Group, setting: TrialSetting, **options: Any) -> Iterator[list[Report]]:
    """Execute a group, and yield what each interval reports of its segments, until all are done.

    After a StorageError the group can be executed again. Options are those of `_SegmentExecution`.
    """
    reports: list[Report] = []
    if group.packed == 1:
        one = _SegmentExecution(group.segments[0], setting, **options)
        while not reports or not reports[0].done:
            reports = [one.step()]
            yield reports
        return
    from tuneparts.executors._packed import PackExecution  # needs torch

    pack = PackExecution(group, setting, **options)
    while not reports or not all(report.done for report in reports):
        reports = pack.step()
        yield reports


class _SegmentExecution:
    """One segment under way; each `step` is one interval of its learner.

    Everything is in the checkpoint store before it is reported, so an execution that is started
    again continues from the last interval and reports its rows again.
    """

    def __init__(
        self,
        segment: Segment,
        setting: TrialSetting,
        *,
        threads: int = 1,
        gpus: float = 0.0,
        tasks: TaskRunner | None = None,
    ) -> None:
        self._segment, self._setting, self._threads = segment, setting, threads
        self._folder = Folder(setting.storage)
        self.states = CheckpointStore(self._folder)
        self._context = setting.context(segment.trial, segment.config, gpus=gpus, tasks=tasks)
        # Made by the first step, so that what it raises becomes a report.
        self._learner: Learner | None = None
        self._seconds = 0.0
        self._history: list[dict[str, float]] = []
        """All rows of the trial, also of earlier rounds."""
        self._is_behind = False
        """Whether a later round has begun already; then there is nothing to do but to report."""
        self._unreported: list[dict[str, float]] = []

    def step(self) -> Report:
        """Train for one interval; after a StorageError the segment can be executed again."""
        try:
            with self.log.listen(), self._setting.code.importable():
                learner = self._learner or self.build()
                if not self.is_over:
                    with self._context.seeded_globals(learner.steps):
                        with self.timed(learner.steps) as spent:
                            metrics = dict(learner.advance())
                        self.keep({**metrics, **spent}, learner.state_dict())
            self.log.keep()
        except Exception as error:
            return self.failed(error)
        return self.reported()

    @cached_property
    def log(self) -> _TrialLog:
        set_threads(self._threads)
        return _TrialLog(self._folder, self._segment.trial)

    def failed(self, error: Exception) -> Report:
        if isinstance(error, OSError) and is_disk_full(error):
            return Report(done=True, disk_full=redact(str(error)))
        with suppress(OSError, StorageError):  # the storage may be what failed
            self.log.add("".join(traceback.format_exception(error)))
            self.log.keep()
        failure = redact(f"{type(error).__name__}: {error}")
        if is_transient(error):
            # It may come back, so the trial has not failed yet. The executor starts the
            # segment again; `from None` because executors log whatever hangs on the error.
            raise StorageError(failure) from None
        # The same config would fail the same way: no second try.
        leave = not isinstance(error, TunepartsError)
        return Report(self._unreported, done=True, failure=failure, leave=leave)

    def reported(self) -> Report:
        assert self._learner is not None
        rows, self._unreported = self._unreported, []
        finished = self._learner.finished and not self._is_behind
        return Report(rows, done=self.is_over, finished=finished)

    def build(self) -> Learner:
        """Build the learner, in the newest state that was kept."""
        segment, learner = self._segment, _build_learner(self._segment.config, self._context)
        set_threads(self._threads)  # where its config was the first to import torch
        found = self.states.find(segment)
        if found is not None:
            learner.load_state_dict(found.state["learner"])
            self._history = list(found.state["rows"])
            if segment.donor is not None and found.round < segment.round:
                own = self.states.last(segment.trial)  # the state found holds rows of the donor
                self._history = [] if own is None else list(own["rows"])
        if found is not None and found.round >= segment.round:
            # The driver may have died before it recorded these rows. It ignores those it knows.
            self._seconds = found.state["seconds"]
            self._is_behind = found.round > segment.round
            self._unreported = self._rows_of_segment()
        device = self._context.device if "torch" in sys.modules else "cpu"
        self.log.add(
            f"{segment.config['method']} from {learner.steps} to {segment.until} steps on "
            f"{platform.node()}, process {os.getpid()}, {device}, threads: {self._threads}"
        )
        self.log.keep()  # a worker that dies at once has said where it ran
        self._learner = learner
        return learner

    def _rows_of_segment(self) -> list[dict[str, float]]:
        segment = self._segment
        rows = [row for row in self._history if row["cost/steps"] > segment.start]
        if not self._is_behind:
            return rows
        if not any(row["cost/steps"] >= segment.until for row in rows):
            raise CheckpointError(
                f"{segment.trial} is in a later round than its journal knows, but what it reported "
                f"of round {segment.round} is not in its state."
            )
        return [row for row in rows if row["cost/steps"] <= segment.until]

    @contextmanager
    def timed(self, steps: int, *, of: str = "", shared_by: int = 1) -> Iterator[dict[str, float]]:
        """Measure the interval after so many steps, and end this process if it hangs.

        What is yielded holds its seconds, and what the process used, after the block. `of` names
        what the trial is part of, if it may not be what hangs; `shared_by` how many trials it has.
        """
        seconds, usage = self._setting.interval_limit, None
        if self.states.has_hung(self._segment, steps, of=of):
            raise HangError(
                f"an interval ends within {seconds:g} s, but the one after {steps} steps did "
                "not. Set TUNEPARTS_INTERVAL_LIMIT if it needs longer."
            )
        if self._setting.system_metrics:
            usage = Usage()
        spent: dict[str, float] = {}
        start = time.perf_counter()
        with limit(seconds, lambda: self.states.note_hang(self._segment, steps, of=of)):
            yield spent
        spent["cost/seconds"] = (time.perf_counter() - start) / shared_by
        spent.update({} if usage is None else usage.metrics())

    def keep(self, metrics: Mapping[str, float], learnt: Mapping[str, Any]) -> None:
        """Keep what an interval gave, and the learner's state after it, before it is reported."""
        assert self._learner is not None
        learner = self._learner
        self._seconds += metrics["cost/seconds"]
        row = {**metrics, "cost/seconds": self._seconds}
        self._history.append(row)
        self._unreported.append(row)
        if learner.finished:
            ArtifactStore(self._folder).put(self._segment.trial, learner.artifacts())
        state = {"learner": learnt, "seconds": self._seconds, "rows": self._history}
        self.states.put(self._segment, learner.steps, state, last=self.is_over)

    @property
    def is_over(self) -> bool:
        """Whether the learner that was built has come to the end of the segment."""
        assert self._learner is not None
        is_reached = self._learner.steps >= self._segment.until
        return self._learner.finished or is_reached or self._is_behind
