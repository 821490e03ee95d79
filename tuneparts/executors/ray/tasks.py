"""Runs jobs as streaming Ray tasks: Ray queues and places them, the plan decides.

Each job is a task of its own, with the resources of its arm. Few wait at a time: the plan may want
something else to go first by the time that there is a place.
"""

import logging
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from tuneparts.core.errors import StorageError, WorkerError
from tuneparts.core.redaction import redact
from tuneparts.executors._driver import Job
from tuneparts.executors._watchdog import IN_WORKER, give_back_memory
from tuneparts.executors.place import Amounts, slots
from tuneparts.executors.ray import cluster
from tuneparts.executors.setting import TrialSetting
from tuneparts.executors.worker import Report, reports_of
from tuneparts.search.code import Code
from tuneparts.search.queue import Waiting
from tuneparts.search.segment import Group
from tuneparts.training.process import keep_freed_memory

_LOOK = 1.0
"""Seconds without news after which the driver looks for requests to stop and for late trials."""
_FEWEST_WAITING = 2
"""Tasks of a shape that may wait for a place at any time."""
_GRACE = 30.0
"""Seconds after which a damaged process ends by itself."""
_log = logging.getLogger(__name__)


@dataclass(eq=False, kw_only=True)
class _Task(Job):
    """A job that was handed to Ray."""

    reports: Any
    """Ray's generator of what it yields."""

    @property
    def arm(self) -> str:
        return self.group.segments[0].trial.arm


class _Tasks:
    """Runs the jobs of a search on the Ray that this process has joined.

    `needs` are arm -> what a trial reserves: its own bundle, then those of its tasks. Trials hold
    `cpus` in all at most.
    """

    def __init__(
        self, needs: Mapping[str, Sequence[Amounts]], storage: str, *, cpus: float | None = None
    ) -> None:
        self.storage = storage
        self._needs, self._cpus = needs, cpus
        self._shapes = {arm: tuple(sorted(need[0].items())) for arm, need in needs.items()}
        self._options = {arm: cluster.options(need[0]) for arm, need in needs.items()}
        self._remote = ray.remote(max_calls=0, max_retries=0, num_returns="streaming")(_train)
        self._setting: Any = None
        self._can_grow = cluster._has_autoscaler()

    def warm_up(self, queued: Iterable[Waiting]) -> None:
        """Let processes start and import what trials need while the driver reads the data."""
        nodes = list(cluster.nodes().values())
        remote = ray.remote(max_calls=0, max_retries=0)(_warm_up)
        for waiting in queued:
            need = self._needs[waiting.arm]
            for _ in range(slots(need, nodes, most=min(waiting.count, 64))):
                remote.options(**self._options[waiting.arm]).remote("torch" in sys.modules)

    def use(self, setting: TrialSetting) -> None:
        """Send what all trials share."""
        self._setting = ray.put(setting)

    def open_arms(self, jobs: Sequence[Any]) -> set[str]:
        waiting = Counter(self._shapes[job.arm] for job in jobs if not job.has_begun)
        begun = Counter(self._shapes[job.arm] for job in jobs if job.has_begun)
        arms = Counter(job.arm for job in jobs)
        held = sum(self._needs[job.arm][0]["CPU"] for job in jobs)
        found = set()
        for arm, shape in self._shapes.items():
            need = self._needs[arm]
            most = max(_FEWEST_WAITING, begun[shape] if self._can_grow else 0)
            has_cpus = self._cpus is None or held + need[0]["CPU"] <= self._cpus
            if waiting[shape] < most and has_cpus and self._holds_tasks(arm, arms[arm]):
                found.add(arm)
        return found

    def _holds_tasks(self, arm: str, count: int) -> bool:
        """Whether one trial more leaves place for tasks of the trials of an arm."""
        need = self._needs[arm]
        return len(need) == 1 or slots(need, list(cluster.nodes().values())) > count

    def submit(self, group: Group) -> _Task:
        trial = group.segments[0].trial
        bundle = self._needs[trial.arm][0]
        share = {"threads": max(1, int(bundle["CPU"])), "gpus": bundle.get("GPU", 0.0)}
        remote = self._remote.options(name=str(trial), **self._options[trial.arm])
        return _Task(group, reports=remote.remote([self._setting], group, share))

    def wait(self, jobs: Sequence[Any]) -> Iterator[tuple[Job, list[Report] | Exception]]:
        waited_for = {job.reports: job for job in jobs}
        if not waited_for:
            time.sleep(_LOOK)
            return
        ready, _ = ray.wait(list(waited_for), num_returns=1, timeout=_LOOK)
        if ready:
            ready, _ = ray.wait(list(waited_for), num_returns=len(waited_for), timeout=0)
        for job in map(waited_for.__getitem__, ready):
            try:
                yield job, ray.get(next(job.reports))
            except (StopIteration, RayError) as error:
                why = redact(str(error)).strip()
                _log.warning("the task of %s was lost: %s", job.group, why)
                last = (why.splitlines() or ["no reason"])[-1]
                yield job, WorkerError(f"{last}. What Ray says of it is in the run's `ray.log`.")

    def end(self, job: Any) -> None:
        with suppress(RayError, ValueError, TypeError):
            ray.cancel(job.reports, force=True)


_settings: dict[Any, TrialSetting] = {}
"""What the trials of the last search in this process share: data is read once."""


def _warm_up(is_training: bool) -> None:
    if is_training:
        from tuneparts.executors import _packed  # noqa: F401  # brings torch


def _train(shared: list[Any], group: Group, share: Mapping[str, Any]) -> Iterator[list[Report]]:
    """In a worker: execute a group, and yield what each interval reports of its segments.

    The first list is empty, and says that the task has begun. No exception leaves a worker, because
    Ray would write its text down: where the storage did not answer, no report is `done`.
    """
    yield []
    if shared[0] not in _settings:
        _settings.clear()
        _settings[shared[0]] = ray.get(shared[0])
        keep_freed_memory()
        os.environ[IN_WORKER] = "1"
    _use_given_gpu()
    setting = _settings[shared[0]]
    try:
        for reports in reports_of(group, setting, tasks=RayTasks(setting.code), **share):
            yield reports
            if any(report.leave for report in reports):
                time.sleep(_GRACE)  # the driver ends this process when it has the reports
                os._exit(1)
    except StorageError:
        return
    finally:
        give_back_memory()


def _use_given_gpu() -> None:
    """Let torch use the GPU that Ray gave to this task, and no other."""
    given = ray.get_gpu_ids()
    if not given:  # Ray lets a process that was given no GPU see all of them
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        return
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_device(_gpu_index(given[0], os.environ.get("CUDA_VISIBLE_DEVICES")))


def _gpu_index(given: object, visible: str | None) -> int:
    """Which of the GPUs that torch sees is the one that Ray calls by this name."""
    return visible.split(",").index(str(given)) if visible else int(str(given))


class RayTasks:
    """The `TaskRunner` of a trial: Ray tasks; a trial that waits for them gives up its CPUs."""

    def __init__(self, code: Code | None = None) -> None:
        self._code = code or Code()

    def share(self, value: Any) -> Any:
        """A reference into Ray's object store, which keeps one copy per node."""
        return ray.put(value)

    def run(
        self,
        function: Callable[..., Any],
        shared: Sequence[Any],
        jobs: Sequence[Any],
        *,
        cpus: float,
        gpus: float,
        at_once: int,
        timeout: float | None,
    ) -> list[Any]:
        # A job that failed would fail again, and one that was killed is late already: no retries.
        remote = ray.remote(_with_code).options(num_cpus=cpus, num_gpus=gpus, max_retries=0)
        waiting = deque(enumerate(jobs))
        running: dict[Any, tuple[int, float]] = {}
        results: list[Any] = [None] * len(jobs)
        while waiting or running:
            while waiting and len(running) < at_once:
                position, job = waiting.popleft()
                reference = remote.remote(self._code, function, *shared, job)
                running[reference] = position, time.monotonic()
            oldest = min(start for _, start in running.values())
            left = None if timeout is None else max(0.0, oldest + timeout - time.monotonic())
            done, _ = ray.wait(list(running), num_returns=1, timeout=left)
            for reference in done:
                position, _ = running.pop(reference)
                try:
                    results[position] = ray.get(reference)
                except RayError as error:  # the task raised, or its worker died
                    results[position] = getattr(error, "cause", None) or error
            for reference, (position, start) in list(running.items()):
                if timeout is not None and time.monotonic() - start > timeout:
                    ray.cancel(reference, force=True)
                    del running[reference]
                    results[position] = TimeoutError(f"no answer within {timeout:g} s")
        return results


def _with_code(code: Code, function: Callable[..., Any], *arguments: Any) -> Any:
    with code.importable():
        return function(*arguments)
