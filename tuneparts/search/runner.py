"""Runs a plan on Ray: one Tuner over all arms, workers reused from trial to trial."""

import fcntl
import logging
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tuneparts import settings
from tuneparts.errors import BusyError, StorageError
from tuneparts.journal import Journal, Observer, Row
from tuneparts.redaction import RedactingFilter
from tuneparts.search import cluster
from tuneparts.search.placement import bundles, refuse_unplaceable
from tuneparts.search.plan import Plan
from tuneparts.search.runs import default_storage
from tuneparts.search.segment import Segment
from tuneparts.search.spec import Search

MAX_WORKER_FAILURES = 3


@dataclass(frozen=True)
class Ending:
    """How a run of the driver ended."""

    status: Literal["done", "interrupted"]
    seconds: float


def run(
    search: Search,
    *,
    folder: Path,
    observers: Sequence[Observer] = (),
    address: str | None = None,
    storage: str | None = None,
) -> Ending:
    """Run what the journal in `folder` does not hold yet.

    Args:
        search: the resolved search.
        folder: the run's folder; made if missing, continued if not.
        observers: told of every event, past ones first.
        address: a Ray cluster; a local one is started when not given.
        storage: where checkpoints lie (path or URI that all nodes reach); inside `folder`
            when not given.
    """
    with exclusive(folder):
        return run_held(
            search, folder=folder, observers=observers, address=address, storage=storage
        )


def run_held(
    search: Search,
    *,
    folder: Path,
    observers: Sequence[Observer] = (),
    address: str | None = None,
    storage: str | None = None,
) -> Ending:
    """As `run`, for a caller that holds the lock: one that tracks must, before it tracks."""
    start = time.monotonic()
    journal = Journal(folder / "journal.jsonl")
    try:
        plan = Plan(search, journal, observers)
        if not plan.done:
            _run_on_ray(plan, folder, address, storage or default_storage(folder))
        status: Literal["done", "interrupted"] = "done"
    except KeyboardInterrupt:
        status = "interrupted"
    finally:
        journal.close()
    return Ending(status, time.monotonic() - start)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the run's lock; a second driver is refused. The kernel frees it when we die."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise BusyError(
                f"one driver at a time runs a search, but process {lock.read().strip() or '?'} "
                f"is running {folder}. Wait for it, or end it."
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _run_on_ray(plan: Plan, folder: Path, address: str | None, storage: str) -> None:
    cluster.prepare(address)
    import ray
    from ray import tune

    from tuneparts.search.halt import Halt
    from tuneparts.search.searcher import PlanSearcher
    from tuneparts.search.trainable import LearnerTrainable

    search = plan.search
    log = _log_to(folder / "ray.log")
    started_here = not ray.is_initialized()
    try:
        if started_here:
            cluster.connect(address)
        needs = {arm.name: bundles(arm) for arm in search.arms}
        refuse_unplaceable(needs, cluster.nodes())
        width = max(1, int(ray.cluster_resources().get("CPU", 1)))
        os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(2 * width)
        shared = {
            "task": search.data.load(),
            "storage": storage,
            "score_test_always": search.score_test_always,
            "interval_limit": settings.current().interval_limit,
        }
        trainable = tune.with_resources(
            tune.with_parameters(LearnerTrainable, **shared),
            lambda config: tune.PlacementGroupFactory(config["bundles"]),
        )
        halt = Halt()
        tuner = tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                search_alg=PlanSearcher(plan, needs, halt), num_samples=-1, reuse_actors=True
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=str((folder / "ray").absolute()),
                verbose=0,
                stop=halt,
                failure_config=tune.FailureConfig(max_failures=MAX_WORKER_FAILURES),
                checkpoint_config=tune.CheckpointConfig(
                    checkpoint_frequency=0, checkpoint_at_end=False
                ),
            ),
        )
        with halt.guard():
            tuner.fit()
    finally:
        if started_here:
            ray.shutdown()
        _stop_logging(log)
        shutil.rmtree(folder / "ray", ignore_errors=True)  # Ray's own records: nobody reads them
    if halt.reason is not None:
        raise StorageError(halt.reason)
    if not plan.done:
        raise RuntimeError(f"Ray stopped before the search was done; see {folder / 'ray.log'}.")


def to_rows(segment: Segment, rows: Sequence[dict[str, float]]) -> list[Row]:
    """What a worker reported, as journal rows."""
    now = time.time()
    return [Row(segment.trial, int(row["cost/passes"]), row, now) for row in rows]


def _log_to(path: Path) -> logging.Handler:
    """Ray's chatter goes to a file."""
    handler = logging.FileHandler(path)
    handler.addFilter(RedactingFilter())
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("ray")
    logger.handlers = [handler]
    logger.propagate = False
    return handler


def _stop_logging(handler: logging.Handler) -> None:
    logging.getLogger("ray").removeHandler(handler)
    with suppress(OSError):  # a full disk is told of by the journal, and must not be told by a log
        handler.close()
