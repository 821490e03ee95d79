"""The Ray executor: a plan on a Ray cluster. Only this folder needs Ray."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuneparts.search.code import Code
    from tuneparts.search.plan import Plan


def run(
    plan: "Plan",
    folder: Path,
    address: str | None,
    storage: str,
    *,
    code: "Code | None" = None,
    cpus: float | None = None,
) -> None:
    """Run the plan to its end, on the Ray that this process has joined, or on one joined here.

    Args:
        plan: what is left of a search.
        folder: the run's folder, for Ray's log.
        address: HOST:PORT of a cluster; a local one is started when not given.
        storage: where checkpoints are; every node reaches it.
        code: what the search brings along; it is sent to the workers.
        cpus: CPUs that trials may fill; all of the cluster when not given.

    Raises:
        StorageError: A disk is full, or the nodes do not share the storage.
        PlacementError: A trial needs more than any node has.
        WorkerError: Workers do not start.
    """
    from tuneparts.core import atomic, settings
    from tuneparts.executors.place import bundles
    from tuneparts.executors.ray import cluster

    with (
        _logging_to(atomic.inside(folder, folder / "ray.log")),
        cluster.joined_once(address, cpus=cpus),
    ):
        from tuneparts.executors.ray.executor import drive  # imports Ray, which is prepared now
        from tuneparts.executors.worker import TrialSetting

        limit = 0.0 if address is None else settings.current().node_limit
        cluster.await_room({arm.name: bundles(arm) for arm in plan.search.arms}, limit)
        cluster.refuse_unshared(storage)
        drive(plan, lambda: TrialSetting.of(plan.search, storage, code, folder), cpus=cpus)


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Send what Ray and this folder log to a file instead of the terminal."""
    from tuneparts.core.redaction import RedactingFilter

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
