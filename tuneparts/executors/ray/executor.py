"""Runs a plan on Ray: a pool of workers that live from the first trial to the last."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from tuneparts.core import atomic, settings
from tuneparts.core.redaction import RedactingFilter
from tuneparts.executors.packed import deliver_all, gives_up
from tuneparts.executors.placement import bundles
from tuneparts.executors.ray import cluster
from tuneparts.executors.worker import TrialSetting
from tuneparts.search.code import Code
from tuneparts.search.groups import Groups
from tuneparts.search.plan import Plan


def run(
    plan: Plan,
    folder: Path,
    address: str | None,
    storage: str,
    *,
    code: Code | None = None,
    cpus: float | None = None,
) -> None:
    """Run the plan to its end, on the Ray that this process has joined, or on one joined here.

    Args:
        plan: what is left of a search.
        folder: the run's folder, for Ray's log.
        address: HOST:PORT of a cluster; a local one is started when not given.
        storage: where checkpoints lie; every node reaches it.
        code: what the search brings along; it is sent to the workers.
        cpus: CPUs that trials may fill; all of the cluster when not given.

    Raises:
        StorageError: A disk is full, or the nodes do not share the storage.
        PlacementError: A trial needs more than any node has.
        WorkerError: Workers do not start.
    """
    cluster.prepare(address)
    import ray

    from tuneparts.executors.ray.probe import refuse_unshared

    is_joined = ray.is_initialized()
    with (
        _logging_to(atomic.inside(folder, folder / "ray.log")),
        nullcontext() if is_joined else cluster.joined(address, cpus=cpus),
    ):
        can_grow = address is not None
        limit = settings.current().node_limit if can_grow else 0.0
        cluster.await_room({arm.name: bundles(arm) for arm in plan.search.arms}, limit)
        refuse_unshared(storage)

        def load() -> TrialSetting:
            return TrialSetting.of(plan.search, storage, code, folder)

        drive(plan, load, cpus=cpus, can_grow=can_grow)


def drive(
    plan: Plan,
    load: Callable[[], TrialSetting],
    *,
    cpus: float | None = None,
    can_grow: bool = False,
) -> None:
    """Run the plan to its end on the Ray that this process has joined.

    Args:
        plan: what is left of a search.
        load: reads what all trials share, the data for one, while workers are starting.
        cpus: as of `run`.
        can_grow: whether to ask the cluster's autoscaler for nodes.
    """
    from tuneparts.executors.ray.pool import Pool

    needs = {arm.name: bundles(arm) for arm in plan.search.arms}
    groups = Groups(plan)
    with Pool(needs, cpus=cpus, can_grow=can_grow) as pool:
        pool.hand_out(plan, groups)
        setting = load()
        pool.use(setting)
        while not plan.done:
            plan.look()
            for worker, group, _ in pool.silent():
                if groups.is_over(group):
                    pool.drop(worker)
            pool.hand_out(plan, groups)
            for worker, group, reports in pool.news():
                if reports is None or any(report.leave for report in reports):
                    pool.drop(worker)
                if reports is None:
                    groups.lost(group)
                else:
                    deliver_all(groups, group, reports)
            for worker, group, seconds in pool.silent():
                if gives_up(groups, group, seconds, setting.storage):
                    pool.drop(worker)


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Send what Ray and our workers' pool log to a file instead of the terminal."""
    handler = logging.FileHandler(path)
    handler.addFilter(RedactingFilter())
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    loggers = [logging.getLogger(name) for name in ("ray", "tuneparts.executors.ray")]
    for logger in loggers:
        logger.handlers = [handler]
        logger.propagate = False
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
        with suppress(OSError):  # the journal already reports a full disk
            handler.close()
