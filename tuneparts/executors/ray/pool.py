"""Workers on a Ray cluster that live from the first trial to the last.

A worker is an actor, and takes segments of one shape (see `staffing`). One that has been started is
given a segment only when it is ready, so a segment never waits for a process to start while another
worker is free.
"""

import itertools
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import ray
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from tuneparts.core.errors import WorkerError
from tuneparts.core.redaction import redact
from tuneparts.executors.placement import Amounts
from tuneparts.executors.ray import cluster
from tuneparts.executors.staffing import Post, Shape, bundles_of, decide, shape_of
from tuneparts.executors.worker import Report, TrialSetting
from tuneparts.search.groups import Group, Groups
from tuneparts.search.plan import Plan

LOOK = 1.0
"""Seconds between two looks at the cluster: nodes that joined or left, late trials."""
MAX_FAILED_STARTS = 5
"""How often in a row workers may fail to start."""
MAX_ASKED = 1000
"""Trials that an autoscaler is asked for at most; it has a limit of its own."""
_log = logging.getLogger(__name__)


class TrainableActor:
    """Holds the trainable in a worker's process.

    Only workers import the trainable: with it comes Ray Tune, which would hold up the driver, and
    so the start of its workers, for a second.
    """

    def __init__(self) -> None:
        from tuneparts.executors.ray.trainable import LearnerTrainable

        self._trainable = LearnerTrainable()

    def prepare(self, setting: TrialSetting) -> str:
        return self._trainable.prepare(setting)

    def run(self, config: dict[str, Any]) -> Iterator[list[Report]]:
        yield from self._trainable.run(config)


class Worker(Post):
    """An actor of the pool, seen from the driver."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        bundles = bundles_of(shape)
        options: dict[str, Any] = {"max_restarts": 0, "max_task_retries": 0}
        self._group = placement_group(bundles) if len(bundles) > 1 else None
        if self._group is not None:  # tasks of a trial start in the group of their worker
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                self._group,
                placement_group_bundle_index=0,
                placement_group_capture_child_tasks=True,
            )
        self._actor = ray.remote(TrainableActor).options(**options, **_options(bundles[0])).remote()
        self.waited_for: Any = None
        """What `ray.wait` looks at: whether it is ready, or the reports of its group."""
        self.group: Group | None = None
        self.since = time.monotonic()
        """When it was last heard of: got ready, took a group, or reported."""

    def prepare(self, setting: Any) -> None:
        """Send it what all trials share."""
        self.waited_for = self._actor.prepare.remote(setting)

    def get_ready(self) -> None:
        """Learn where it runs.

        Raises:
            RayError: It did not start.
        """
        node = ray.get(self.waited_for)
        others: Sequence[str] = ()
        if self._group is not None:
            places = placement_group_table(self._group)["bundles_to_node_id"]
            others = [places[number] for number in sorted(places)][1:]
        self.nodes = (node, *others)
        self.since = time.monotonic()

    def take(self, group: Group) -> None:
        """Begin a group."""
        bundle = dict(self.shape[0])
        config = {
            "segments": [segment.to_json() for segment in group.segments],
            "packed": group.packed,
            "threads": max(1, int(bundle["CPU"])),
            "gpus": bundle.get("GPU", 0.0),
        }
        self.waited_for = self._actor.run.options(num_returns="streaming").remote(config)
        self.group, self.is_busy, self.since = group, True, time.monotonic()

    def hear(self) -> list[Report] | None:
        """Take the next reports of its group; None if it was lost with its process or storage."""
        try:
            reports: list[Report] = ray.get(next(self.waited_for))
        except (StopIteration, RayError) as error:
            _log.warning("the worker of %s was lost: %s", self.group, redact(str(error)))
            return None
        self.since = time.monotonic()
        if all(report.done for report in reports):
            self.group, self.is_busy = None, False
        return reports

    def end(self) -> None:
        """End the process; all that must survive is in the checkpoint store."""
        with suppress(RayError, ValueError):
            ray.kill(self._actor)
        if self._group is not None:
            remove_placement_group(self._group)


class Pool:
    """All workers of a search.

    Args:
        needs: arm -> bundles of its trials.
        cpus: CPUs that workers may hold in all; None for all that there are.
        can_grow: whether to ask an autoscaler for nodes; without one it changes nothing.
    """

    def __init__(
        self,
        needs: Mapping[str, Sequence[Amounts]],
        *,
        cpus: float | None = None,
        can_grow: bool = False,
    ) -> None:
        self._setting: Any = None
        self._shapes = {arm: shape_of(trial) for arm, trial in needs.items()}
        self._has_one_shape = len(set(self._shapes.values())) == 1
        self._cpus = cpus
        self._can_grow = can_grow
        self._asked: list[Shape] = []
        self._is_news = True
        """Whether workers have come or gone since they were last decided on."""
        self._nodes: dict[str, dict[str, float]] = {}
        self._looked = -LOOK
        self._failed_starts = 0
        self._last_failed_start = 0.0
        self.workers: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self.workers:
            worker.end()
        if self._asked:
            cluster.request([])

    def use(self, setting: TrialSetting) -> None:
        """Send workers what all trials share; until then they start, and are given nothing."""
        self._setting = ray.put(setting)
        for worker in self.workers:
            worker.prepare(self._setting)

    def hand_out(self, plan: Plan, groups: Groups) -> None:
        """Start and end workers as the plan needs them, and give segments to those without."""
        has_looked = self._look_at_nodes()
        # Workers of one shape never give way, so nothing changes when one has ended its segment.
        if has_looked or self._is_news or not self._has_one_shape:
            waiting = [
                (self._shapes[one.arm], math.ceil(one.count / plan.search.arm(one.arm).packed))
                for one in plan.waiting()
            ]
            self._hire_and_fire(waiting, most=int(has_looked) if self._failed_starts else None)
            if has_looked and self._can_grow:
                self._ask_for_nodes(waiting)
        for worker in self.workers:
            if worker.is_idle:
                arms = [arm for arm, shape in self._shapes.items() if shape == worker.shape]
                group = groups.take(arms)
                if group is not None:
                    worker.take(group)
                    groups.started(group)

    def news(self) -> Iterator[tuple[Worker, Group, list[Report] | None]]:
        """Wait a little, and yield what workers report of their groups; None of a lost one."""
        told = {worker.waited_for: worker for worker in self.workers if not worker.is_idle}
        if not told:
            time.sleep(LOOK)
            return
        ready, _ = ray.wait(list(told), num_returns=1, timeout=LOOK)
        if ready:
            ready, _ = ray.wait(list(told), num_returns=len(told), timeout=0)
        for reference in ready:
            worker = told[reference]
            if worker.group is not None:
                group = worker.group
                yield worker, group, worker.hear()
            else:
                self._welcome(worker)

    def silent(self) -> list[tuple[Worker, Group, float]]:
        """List the workers that are busy, with the seconds since each was last heard of."""
        now = time.monotonic()
        return [
            (worker, worker.group, now - worker.since)
            for worker in self.workers
            if worker.group is not None
        ]

    def drop(self, worker: Worker) -> None:
        """End a worker."""
        self.workers.remove(worker)
        worker.end()
        self._is_news = True

    def _hire_and_fire(self, waiting: list[tuple[Shape, int]], *, most: int | None) -> None:
        """Start at most so many workers, and end others, as `staffing` decides."""
        now = time.monotonic()
        for worker in self.workers:
            worker.idle_seconds = 0.0 if worker.is_busy else now - worker.since
        change = decide(self._nodes, self.workers, waiting, cpus=self._cpus)
        for post in change.end:
            assert isinstance(post, Worker)
            self.drop(post)
        for shape in change.start[:most]:
            self.workers.append(Worker(shape))
            if self._setting is not None:
                self.workers[-1].prepare(self._setting)
        self._is_news = bool(change.end)

    def _ask_for_nodes(self, waiting: list[tuple[Shape, int]]) -> None:
        """Ask the autoscaler for room for all that runs or waits."""
        shapes = [worker.shape for worker in self.workers if worker.is_busy]
        for shape, count in waiting:
            shapes += [shape] * min(count, MAX_ASKED - len(shapes))
        if self._cpus is not None:
            held = itertools.accumulate(sum(dict(b).get("CPU", 0) for b in one) for one in shapes)
            shapes = [one for one, cpus in zip(shapes, held, strict=True) if cpus <= self._cpus]
        if sorted(shapes) != self._asked:
            self._asked = sorted(shapes)
            cluster.request([bundles_of(shape) for shape in self._asked])

    def _welcome(self, worker: Worker) -> None:
        try:
            worker.get_ready()
            self._failed_starts = 0
            self._is_news = True
        except RayError as error:
            self.drop(worker)
            if worker.since > self._last_failed_start:  # several may fail for one reason
                self._failed_starts += 1
                self._last_failed_start = time.monotonic()
            _log.warning("a worker did not start: %s", redact(str(error)))
            if self._failed_starts > MAX_FAILED_STARTS:
                why = redact(str(error)).strip().splitlines()[-1]
                raise WorkerError(
                    f"a worker must be able to start, but {self._failed_starts} in a row did not: "
                    f"{why}. What Ray says of it is in `ray.log` of the run's folder."
                ) from None

    def _look_at_nodes(self) -> bool:
        """Ask Ray which nodes there are, if the last answer is old; returns whether it was."""
        if time.monotonic() - self._looked < LOOK:
            return False
        self._looked = time.monotonic()
        self._nodes = cluster.nodes()
        for worker in [one for one in self.workers if one.is_idle]:
            if not set(worker.nodes or ()) <= set(self._nodes):
                self.drop(worker)
        return True


def _options(bundle: Mapping[str, float]) -> dict[str, Any]:
    """What an actor reserves, in Ray's words."""
    names = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    plain = {names[name]: amount for name, amount in bundle.items() if name in names}
    custom = {name: amount for name, amount in bundle.items() if name not in names}
    return {"num_cpus": 0, **plain, "resources": custom}
