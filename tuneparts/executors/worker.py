"""Executes one segment of one trial, in whatever process it is called.

Config to learner, learner to rows, state to and from the checkpoint store. It knows neither Ray
nor the plan: executors decide where it runs, and pass what it reports on to the plan.
"""

import errno
import gc
import os
import platform
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tuneparts.core import settings
from tuneparts.core.errors import (
    CheckpointError,
    ClusterError,
    DataMissingError,
    HangError,
    StorageError,
    TunepartsError,
)
from tuneparts.core.redaction import redact
from tuneparts.core.seeding import derive
from tuneparts.data.task import Task
from tuneparts.executors._watchdog import Usage, cuda_in_use, limit
from tuneparts.executors.logs import _TrialLog
from tuneparts.search import data_record
from tuneparts.search.arm import DATA_KEY, method_config, variant_name
from tuneparts.search.check import check_data
from tuneparts.search.checkpoints import ArtifactStore, CheckpointStore
from tuneparts.search.code import Code
from tuneparts.search.events import TrialId
from tuneparts.search.groups import Group
from tuneparts.search.segment import Segment
from tuneparts.search.spec import Search
from tuneparts.search.storage import Folder
from tuneparts.training.learner import Context, Learner, TaskRunner

_AWAY = ("botocore", "urllib3", "http.client", "google.api_core", "grpc", "ray.exceptions")
"""Modules whose exceptions say that a service did not answer; none of them need be installed."""


@dataclass(frozen=True)
class TrialSetting:
    """What all trials of a search share: data, the place of their files, and limits."""

    task: Task
    storage: str
    score_test_always: bool
    interval_limit: float
    code: Code = field(default_factory=Code)
    """What the search brings along; a worker imports from it."""
    system_metrics: bool = False
    """Whether rows tell what the worker used of its machine."""
    variants: Mapping[str, Task] = field(default_factory=dict)
    """Data of the trials that have other data than the search: `variant_name` -> task."""
    draws: Mapping[int, tuple[Task, Mapping[str, Task]]] = field(default_factory=dict)
    """Task and variants of each draw of the data, where replicates have data of their own."""
    fresh: frozenset[str] = frozenset()
    """Arms whose learners have another seed than those of the arm that they follow."""
    search: str = ""
    """Name of the search."""

    def context(self, trial: TrialId, config: Mapping[str, Any], **options: Any) -> Context:
        """The data, seed and device that a trial of this config gets."""
        task, variants = self.draws[trial.seed] if self.draws else (self.task, self.variants)
        changes = config.get(DATA_KEY)
        return Context(
            task=variants[variant_name(changes)] if changes else task,
            seed=_seed(trial, is_fresh=trial.arm in self.fresh),
            score_test_always=self.score_test_always,
            stream=_stream(self.search, trial),
            **options,
        )

    @classmethod
    def of(
        cls, search: Search, storage: str, code: Code | None = None, folder: Path | None = None
    ) -> "TrialSetting":
        """Load the data of a search, and read the limits from the settings of this process.

        The run's `folder` keeps a record of the data; data that is not what the run began with is
        refused.
        """
        code = code or Code()
        with code.importable():
            draws = {
                draw: (search.load_data(draw=draw), search.load_variants(draw))
                for draw in search.data_draws()
            }
            task, variants = next(iter(draws.values()))
            check_data(search, task, variants)
            drawn = {draw: both for draw, both in draws.items() if draw is not None}
            if folder is not None and search.data is not None:
                data_record.keep(task, folder, variants, drawn)
        return cls(
            task=task,
            storage=storage,
            score_test_always=search.score_test_always,
            interval_limit=settings.current().interval_limit,
            system_metrics=settings.current().system_metrics,
            code=code,
            variants=variants,
            draws=drawn,
            fresh=frozenset(arm.name for arm in search.arms if arm.fresh_seed),
            search=search.name,
        )


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

    The options are those of `_SegmentExecution`.

    Raises:
        StorageError: The storage did not answer. The group can be executed again.
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

    Everything that must survive is in the checkpoint store before it is reported, so an execution
    that is started again after a crash continues from the last interval and reports its rows again.
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
        """Train for one interval; the first step also builds the learner.

        Raises:
            StorageError: The storage did not answer. The segment can be executed again.
        """
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
        """The log of the trial."""
        _set_threads(self._threads)
        return _TrialLog(self._folder, self._segment.trial)

    def failed(self, error: Exception) -> Report:
        """The report of a trial that an exception ended."""
        if isinstance(error, OSError) and _is_disk_full(error):
            return Report(done=True, disk_full=redact(str(error)))
        with suppress(OSError, StorageError):  # the storage may be what failed
            self.log.add("".join(traceback.format_exception(error)))
            self.log.keep()
        failure = redact(f"{type(error).__name__}: {error}")
        if _is_transient(error):
            # It may come back, so the trial has not failed yet. The executor starts the
            # segment again; `from None` because executors log whatever hangs on the error.
            raise StorageError(failure) from None
        # The same config would fail the same way: no second try.
        leave = not isinstance(error, TunepartsError)
        return Report(self._unreported, done=True, failure=failure, leave=leave)

    def reported(self) -> Report:
        """The report of what has not been reported yet."""
        assert self._learner is not None
        rows, self._unreported = self._unreported, []
        finished = self._learner.finished and not self._is_behind
        return Report(rows, done=self.is_over, finished=finished)

    def build(self) -> Learner:
        """Build the learner, in the newest state that was kept."""
        segment, learner = self._segment, _build_learner(self._segment.config, self._context)
        _set_threads(self._threads)  # where its config was the first to import torch
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


def _build_learner(config: Mapping[str, Any], context: Context) -> Learner:
    """Build the learner of a trial from its config as plain values.

    What the config says of the data is in the context already.
    """
    made = method_config(config)  # its import may draw, but only the first in a process
    with context.seeded_globals():
        return made.build(context)


def _seed(trial: TrialId, *, is_fresh: bool) -> int:
    return derive(trial.seed, "fresh", trial.arm) if is_fresh else trial.seed


def _stream(search: str, trial: TrialId) -> tuple[str | int, ...]:
    """What names the random streams of a trial of a search among those of its seed."""
    return search, trial.arm, trial.index


def restore_learner(
    search: Search, storage: str, trial: TrialId, config: Mapping[str, Any]
) -> Learner:
    """Rebuild the learner of a trial on the CPU, in the newest state that was kept."""
    state = CheckpointStore(Folder(storage)).last(trial)
    if state is None:
        raise DataMissingError(
            f"{trial}: it has no checkpoint in {storage}, from which its model would be made. The "
            "selected trial of each seed keeps its state; all do with `keep_checkpoints=True`."
        )
    task = trial_data(search, trial, config)
    seed = _seed(trial, is_fresh=search.arm(trial.arm).fresh_seed)
    learner = _build_learner(config, Context(task, seed, stream=_stream(search.name, trial)))
    learner.load_state_dict(state["learner"])
    return learner


def trial_data(search: Search, trial: TrialId, config: Mapping[str, Any]) -> Task:
    """Load the data that a trial of a search learns from."""
    arm = search.arm(trial.arm)
    changes = config.get(DATA_KEY) if arm.has_variants else None
    return search.load_data(changes, trial.seed if search.draws_data else None)


def _set_threads(threads: int) -> None:
    """Let torch use so many threads, if this process has imported it."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


def _give_back_memory() -> None:
    """Give the memory of a learner that is gone back to the GPU, which other processes share."""
    if (cuda := cuda_in_use()) is not None:
        gc.collect()
        cuda.empty_cache()


def _is_transient(error: BaseException | None) -> bool:
    """Whether an exception says that storage or a network did not answer: it may be back later.

    What it was raised from counts too. Our own errors are about what will not change.
    """
    while error is not None and not isinstance(error, TunepartsError):
        module = f"{type(error).__module__}."
        if isinstance(error, OSError) or module.startswith(tuple(f"{name}." for name in _AWAY)):
            return True
        error = error.__cause__
    return isinstance(error, StorageError | ClusterError)


def _is_disk_full(error: OSError) -> bool:
    """Whether a disk or quota is full; pyarrow does not always say so in `errno`."""
    return (
        error.errno in {errno.ENOSPC, errno.EDQUOT}
        or "No space left" in str(error)
        or "quota" in str(error).lower()
    )
