"""The Ray executor: a plan on a Ray cluster. Only this folder needs Ray."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tuneparts.core import atomic, settings
from tuneparts.core.redaction import RedactingFilter
from tuneparts.executors.place import Place, bundles
from tuneparts.executors.ray import cluster
from tuneparts.executors.setting import TrialSetting
from tuneparts.search.code import Code
from tuneparts.search.plan import Plan


def _run(plan: Plan, storage: str, place: Place, code: Code) -> None:
    """Run the plan to its end, on the Ray that this process has joined, or on one joined here."""
    folder = plan.journal.path.parent
    with (
        _logging_to(atomic.inside(folder, folder / "ray.log")),
        cluster.joined_once(place.address, cpus=place.cpus),
    ):
        from tuneparts.executors._driver import drive
        from tuneparts.executors.ray.tasks import _Tasks  # imports Ray, which is prepared now

        limit = 0.0 if place.address is None else settings.current().node_limit
        needs = {arm.name: bundles(arm) for arm in plan.search.arms}
        cluster.await_room(needs, limit)
        cluster._refuse_unshared(storage)
        tasks = _Tasks(needs, storage, cpus=place.cpus)
        tasks.warm_up(plan.queue.waiting())
        tasks.use(TrialSetting.of(plan.search, storage, code, folder))
        for _ in drive(plan, tasks):
            pass


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Send what Ray and this folder log to a file instead of the terminal."""
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
