"""Runs a plan on Ray: one Tuner over all arms, workers reused from trial to trial."""

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tuneparts.errors import StorageError
from tuneparts.executors.placement import bundles, refuse_unplaceable
from tuneparts.executors.ray import cluster
from tuneparts.executors.worker import TrialSetting
from tuneparts.redaction import RedactingFilter
from tuneparts.search.code import Code
from tuneparts.search.plan import Plan

if TYPE_CHECKING:  # importing it imports Ray, which must find its environment prepared
    from tuneparts.executors.ray.stopper import DiskFullStopper


def run(
    plan: Plan, folder: Path, address: str | None, storage: str, *, code: Code | None = None
) -> None:
    """Run the plan to its end, on the Ray that this process has joined, or on one joined here.

    Args:
        plan: what is left of a search.
        folder: the run's folder, for Ray's log.
        address: HOST:PORT of a cluster; a local one is started when not given.
        storage: where checkpoints lie; every node reaches it.
        code: what the search brings along; it is sent to the workers.

    Raises:
        StorageError: A disk is full, or the nodes do not share the storage.
        PlacementError: A trial needs more than any node has.
    """
    cluster.prepare(address)
    import ray

    from tuneparts.executors.ray.probe import refuse_unshared
    from tuneparts.executors.ray.stopper import DiskFullStopper

    stopper = DiskFullStopper()
    is_ours = not ray.is_initialized()
    with _logging_to(folder / "ray.log"):
        try:
            if is_ours:
                cluster.connect(address)
            refuse_unshared(storage)
            _tune(plan, folder, storage, stopper, code)
        finally:
            if is_ours:
                ray.shutdown()
            # Ray's own records of trials and results: the journal has all that is needed.
            shutil.rmtree(folder / "ray", ignore_errors=True)
    if stopper.reason is not None:
        raise StorageError(stopper.reason)
    if not plan.done:
        raise RuntimeError(f"Ray stopped before the search was done; see {folder / 'ray.log'}.")


def _tune(
    plan: Plan, folder: Path, storage: str, stopper: "DiskFullStopper", code: Code | None
) -> None:
    import ray
    from ray import tune

    from tuneparts.executors.ray.searcher import PlanSearcher
    from tuneparts.executors.ray.trainable import LearnerTrainable

    needs = {arm.name: bundles(arm) for arm in plan.search.arms}
    refuse_unplaceable(needs, cluster.nodes())
    width = max(1, int(ray.cluster_resources().get("CPU", 1)))
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(2 * width)
    trainable = tune.with_resources(
        tune.with_parameters(
            LearnerTrainable, setting=TrialSetting.of(plan.search, storage, code, folder)
        ),
        lambda config: tune.PlacementGroupFactory(config["bundles"]),
    )
    tuner = tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(
            search_alg=PlanSearcher(plan, needs, stopper), num_samples=-1, reuse_actors=True
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str((folder / "ray").absolute()),
            verbose=0,
            stop=stopper,
            failure_config=tune.FailureConfig(max_failures=0),  # the plan counts, and tries again
            # State is in our own checkpoint store, which every executor reads.
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_frequency=0, checkpoint_at_end=False
            ),
        ),
    )
    with stopper.guard():
        tuner.fit()


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Send what Ray logs to a file instead of the terminal."""
    handler = logging.FileHandler(path)
    handler.addFilter(RedactingFilter())
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("ray")
    logger.handlers = [handler]
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        with suppress(OSError):  # the journal already reports a full disk
            handler.close()
