"""Runs a plan as streaming Ray tasks: Ray queues and places them, the plan decides.

Each group is a task of its own, with the resources of its arm, that yields what each interval
reports. Ray keeps the processes between tasks, so data is sent to each once, and tasks that wait
for a place are what an autoscaler sees as demand. Few wait at a time: the plan may want something
else to go first by the time that there is a place.
"""

import logging
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError

from tuneparts.core.errors import StorageError, WorkerError
from tuneparts.core.redaction import redact
from tuneparts.executors.packed import deliver_all, gives_up
from tuneparts.executors.place import Amounts, bundles, slots
from tuneparts.executors.ray import cluster
from tuneparts.executors.worker import Report, TrialSetting
from tuneparts.search.code import Code
from tuneparts.search.groups import Group, Groups
from tuneparts.search.plan import Plan

_LOOK = 1.0
"""Seconds without news after which the driver looks for requests to stop and for late trials."""
_MOST_FAILED_STARTS = 5
"""How often in a row tasks may fail before they begin."""
_FEWEST_WAITING = 2
"""Tasks of a shape that may wait for a place at any time."""
_GRACE = 30.0
"""Seconds after which a damaged process ends by itself."""
_log = logging.getLogger(__name__)


def drive(plan: Plan, load: Callable[[], TrialSetting], *, cpus: float | None = None) -> None:
    """Run the plan to its end on the Ray that this process has joined.

    Args:
        plan: what is left of a search.
        load: reads what all trials share, the data for one, while processes are starting.
        cpus: CPUs that trials may fill; all of the cluster when not given.
    """
    groups = Groups(plan)
    tasks = Tasks(groups, {arm.name: bundles(arm) for arm in plan.search.arms}, cpus=cpus)
    try:
        tasks.warm_up()
        setting = load()
        tasks.use(setting)
        while not plan.done:
            plan.look()
            for task in tasks.under_way():
                if groups.is_over(task.group):
                    tasks.end(task)
            tasks.hand_over()
            for task, reports in tasks.news():
                if reports is None:
                    groups.lost(task.group)
                    continue
                if any(report.leave for report in reports):
                    tasks.end(task)
                deliver_all(groups, task.group, reports)
            for task in tasks.under_way():
                seconds = time.monotonic() - task.since
                if task.has_begun and gives_up(groups, task.group, seconds, setting.storage):
                    tasks.end(task)
    finally:
        for task in tasks.under_way():
            tasks.end(task)


@dataclass(eq=False)
class Task:
    """A group that was handed to Ray."""

    group: Group
    reports: Any
    """Ray's generator of what it yields."""
    shape: tuple[tuple[str, float], ...]
    has_begun: bool = False
    since: float = field(default_factory=time.monotonic)
    """When it was handed over, began or last reported."""

    def next_reports(self) -> list[Report] | None:
        """The next reports, none when it begins; None if it lost its process or its storage."""
        try:
            reports: list[Report] = ray.get(next(self.reports))
        except (StopIteration, RayError) as error:
            _log.warning("the task of %s was lost: %s", self.group, redact(str(error)))
            self.reports = error
            return None
        self.since = time.monotonic()
        return reports


class Tasks:
    """The groups of a search that Ray has been given.

    Args:
        groups: hands out segments of the plan.
        needs: arm -> what a trial reserves: its own bundle, then those of its tasks.
        cpus: CPUs that trials may hold in all; None for all that there are.
    """

    def __init__(
        self,
        groups: Groups,
        needs: Mapping[str, Sequence[Amounts]],
        *,
        cpus: float | None = None,
    ) -> None:
        self._groups = groups
        self._needs = needs
        self._shapes = {arm: tuple(sorted(need[0].items())) for arm, need in needs.items()}
        self._cpus = cpus
        self._remote = ray.remote(max_calls=0, max_retries=0)(_train)
        self._setting: Any = None
        self._all: list[Task] = []
        self._failed_starts = 0
        self._last_failed_start = 0.0
        self._can_grow = cluster.has_autoscaler()

    def warm_up(self) -> None:
        """Let processes start and import what trials need while the driver reads the data."""
        nodes, remote = list(cluster.nodes().values()), ray.remote(max_calls=0)(_warm_up)
        for waiting in self._groups.plan.waiting():
            need = self._needs[waiting.arm]
            for _ in range(slots(need, nodes, most=min(waiting.count, 64))):
                remote.options(num_returns=1, max_retries=0, **cluster.options(need[0])).remote()

    def use(self, setting: TrialSetting) -> None:
        """Send what all trials share."""
        self._setting = ray.put(setting)

    def hand_over(self) -> None:
        """Hand what may run now over to Ray, as long as few tasks wait for a place."""
        while (group := self._groups.take(self._open_arms())) is not None:
            arm = group.segments[0].trial.arm
            bundle = self._needs[arm][0]
            options = {"num_returns": "streaming", "name": str(group.segments[0].trial)}
            reports = self._remote.options(**options, **cluster.options(bundle)).remote(
                [self._setting], group, max(1, int(bundle["CPU"])), bundle.get("GPU", 0.0)
            )
            self._all.append(Task(group, reports, self._shapes[arm]))

    def _open_arms(self) -> set[str]:
        """Arms of which another trial may be handed over."""
        waiting = Counter(task.shape for task in self._all if not task.has_begun)
        begun = Counter(task.shape for task in self._all if task.has_begun)
        held = sum(dict(task.shape)["CPU"] for task in self._all)
        arms = Counter(task.group.segments[0].trial.arm for task in self._all)
        found = set()
        for arm, shape in self._shapes.items():
            most = max(_FEWEST_WAITING, begun[shape] if self._can_grow else 0)
            has_cpus = self._cpus is None or held + dict(shape)["CPU"] <= self._cpus
            if waiting[shape] < most and has_cpus and self._holds_tasks(arm, arms[arm]):
                found.add(arm)
        return found

    def _holds_tasks(self, arm: str, count: int) -> bool:
        """Whether one trial more leaves place for tasks of the trials of an arm."""
        need = self._needs[arm]
        return len(need) == 1 or slots(need, list(cluster.nodes().values())) > count

    def news(self) -> Iterator[tuple[Task, list[Report] | None]]:
        """Wait a little, and yield what tasks report; None of a lost one, which is forgotten."""
        waited_for = {task.reports: task for task in self._all}
        if not waited_for:
            time.sleep(_LOOK)
            return
        ready, _ = ray.wait(list(waited_for), num_returns=1, timeout=_LOOK)
        if ready:
            ready, _ = ray.wait(list(waited_for), num_returns=len(waited_for), timeout=0)
        for task in map(waited_for.__getitem__, ready):
            reports = task.next_reports()
            if reports is None or (reports and all(report.done for report in reports)):
                self._all.remove(task)
            if reports is None and not task.has_begun:
                self._did_not_begin(task)
                continue
            if not task.has_begun:
                task.has_begun, self._failed_starts = True, 0
                self._groups.started(task.group)
            if reports is None or reports:
                yield task, reports

    def under_way(self) -> list[Task]:
        """The tasks that have begun, or wait for a place."""
        return list(self._all)

    def end(self, task: Task) -> None:
        """End a task with its process; all that must survive is in the checkpoint store."""
        if task in self._all:
            self._all.remove(task)
        with suppress(RayError, ValueError, TypeError):
            ray.cancel(task.reports, force=True)

    def _did_not_begin(self, task: Task) -> None:
        """Queue a group again whose process did not start.

        Raises:
            WorkerError: None does.
        """
        for segment in task.group.segments:
            if not self._groups.plan.is_over(segment):
                self._groups.plan.give_back(segment)
        if task.since < self._last_failed_start:  # several may fail for one reason
            return
        self._failed_starts += 1
        self._last_failed_start = time.monotonic()
        if self._failed_starts > _MOST_FAILED_STARTS:
            why = (redact(str(task.reports)).strip().splitlines() or ["no reason"])[-1]
            raise WorkerError(
                f"workers did not start {self._failed_starts} times in a row: {why}. What Ray says "
                "of it is in `ray.log` of the run's folder."
            ) from None


_settings: dict[Any, TrialSetting] = {}
"""What the trials of the last search share that this process served: data is read once."""


def _warm_up() -> None:
    from tuneparts.executors import packed  # noqa: F401


def _train(shared: list[Any], group: Group, threads: int, gpus: float) -> Iterator[list[Report]]:
    """In a worker: execute a group, and yield what each interval reports of its segments.

    The first list is empty, and says that the task has begun. Without last reports, which are
    `done`, the storage did not answer; the trial's log says why. No exception leaves a worker,
    because Ray would write its text down.
    """
    from tuneparts.executors.packed import GroupExecution
    from tuneparts.executors.worker import give_back_memory
    from tuneparts.training.process import keep_freed_memory

    yield []
    if shared[0] not in _settings:
        _settings.clear()
        _settings[shared[0]] = ray.get(shared[0])
        keep_freed_memory()
    _use_given_gpu()
    setting = _settings[shared[0]]
    tasks = RayTasks(setting.code)
    execution = GroupExecution(group, setting, threads=threads, gpus=gpus, tasks=tasks)
    try:
        reports: list[Report] = []
        while not reports or not all(report.done for report in reports):
            reports = execution.step()
            yield reports
            if any(report.leave for report in reports):
                time.sleep(_GRACE)  # the driver ends this process when it has the reports
                os._exit(1)
    except StorageError:
        return
    finally:
        del execution
        give_back_memory()


def _use_given_gpu() -> None:
    """Let torch use the GPU that Ray gave to this task, and no other."""
    given = ray.get_gpu_ids()
    if not given:  # Ray lets a process that was given no GPU see all of them
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        return
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_device(gpu_index(given[0], os.environ.get("CUDA_VISIBLE_DEVICES")))


def gpu_index(given: object, visible: str | None) -> int:
    """Which of the GPUs that torch sees is the one that Ray calls by this name.

    Example:
        >>> gpu_index(3, None), gpu_index("3", "2,3")
        (3, 1)
    """
    return visible.split(",").index(str(given)) if visible else int(str(given))


class RayTasks:
    """The `TaskRunner` of a trial: plain Ray tasks, for which a trial that waits gives up its CPUs.

    Args:
        code: what the search brings along; tasks import from it too.
    """

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
                running[remote.remote(self._code, function, *shared, job)] = (
                    position,
                    time.monotonic(),
                )
            oldest = min(start for _, start in running.values())
            left = None if timeout is None else max(0.0, oldest + timeout - time.monotonic())
            done, _ = ray.wait(list(running), num_returns=1, timeout=left)
            for reference in done:
                position, _ = running.pop(reference)
                results[position] = _result(reference)
            if timeout is not None:
                for position in _end_late(running, timeout):
                    results[position] = TimeoutError(f"no answer within {timeout:g} s")
        return results


def _with_code(code: Code, function: Callable[..., Any], *arguments: Any) -> Any:
    with code.importable():
        return function(*arguments)


def _result(reference: Any) -> Any:
    """Get what a task returned, or the exception that it ended with."""
    try:
        return ray.get(reference)
    except RayError as error:  # the task raised, or its worker died
        return getattr(error, "cause", None) or error


def _end_late(running: dict[Any, tuple[int, float]], timeout: float) -> list[int]:
    """Cancel the tasks that ran too long; returns their positions."""
    now = time.monotonic()
    late = [reference for reference, (_, start) in running.items() if now - start > timeout]
    for reference in late:
        ray.cancel(reference, force=True)
    return [running.pop(reference)[0] for reference in late]
