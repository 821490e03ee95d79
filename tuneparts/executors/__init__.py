"""Executors of a search: this process, a pool of processes on this machine, or Ray.

`execute` is the one entry. What an executor needs (torch, Ray) is imported only when it runs.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tuneparts.core import schema
from tuneparts.core.errors import ConfigError
from tuneparts.search.events import Observer
from tuneparts.search.journal import Journal
from tuneparts.search.locks import lock

if TYPE_CHECKING:  # torch takes seconds to import, and readers of trial logs do not need it
    from tuneparts.search.spec import Search

__all__ = ["Ending", "execute", "lock"]


@dataclass(frozen=True)
class Ending:
    """How an execution ended: everything done, or interrupted by Ctrl-C."""

    status: Literal["done", "interrupted"]
    seconds: float


def execute(
    search: "Search",
    *,
    folder: Path,
    executor: Literal["ray", "local"] = "ray",
    observers: Sequence[Observer] = (),
    address: str | None = None,
    storage: str | None = None,
    workers: int | None = None,
    cpus: float | None = None,
    watch: Callable[[Callable[[], Mapping[str, int]]], None] | None = None,
) -> Ending:
    """Run every trial of a search that the journal in `folder` does not hold yet.

    The journal is the same, apart from times and the order of its lines, whichever executor is
    chosen and however often the driver was killed on the way.

    Args:
        search: the resolved search.
        folder: the run's folder; made if missing, continued if not. Its lock is held meanwhile.
        executor: `ray` for a cluster, or a Ray that is started here; `local` without Ray.
        observers: told of every event, past ones first.
        address: HOST:PORT of a Ray cluster; a local one is started when not given.
        storage: where checkpoints lie (a path or URI that all nodes reach); inside `folder` when
            not given.
        workers: processes of the local executor; 1 runs trials in this process. As many as the
            machine has room for when not given.
        cpus: CPUs that trials may fill; all of the cluster, or those that this process may use,
            when not given.
        watch: called once with a function that tells, for each arm, how many trials workers have.

    Example:
        >>> import tempfile
        >>> from tuneparts.search import load
        >>> search = load.load("rotated_digits", scale="smoke", arms=["none"], seeds=[0])
        >>> folder = Path(tempfile.mkdtemp())
        >>> execute(search, folder=folder, executor="local", workers=1).status
        'done'
        >>> [str(trial) for trial in Journal(folder / "journal.jsonl").trials]
        ['none/seed0/00000']
    """
    from tuneparts.search import code
    from tuneparts.search.checkpoints import Cleaner

    pass  # DOCTOR
    from tuneparts.search.plan import Plan
    from tuneparts.search.runs import default_storage

    if executor == "local" and address is not None:
        raise ConfigError(f"the local executor joins no cluster, but got the address `{address}`.")
    if executor == "ray" and workers is not None:
        raise ConfigError(
            f"Ray places as many trials as its nodes hold, but got `workers={workers}`. Use "
            "`executor='local'`, or `cpus=` to fill fewer CPUs."
        )
    if cpus is not None and not cpus > 0:
        raise ConfigError(f"trials need CPUs to run on, but got `cpus={cpus:g}`.")
    start = time.monotonic()
    with lock(folder), schema.using(*search.declared_metrics()):
        brought = code.keep(search, folder / "code")
        storage = storage or default_storage(folder)
        cleaner = None if search.keep_checkpoints else Cleaner(storage)
        journal = Journal(folder / "journal.jsonl")
        try:
            forget = cleaner.forget if cleaner else None
            plan = Plan(search, journal, observers, forget=forget, folder=folder)
            if watch is not None:
                watch(plan.at_work)
            if plan.done:
                pass
            elif executor == "local":
                from tuneparts.executors import local

                local.run(plan, storage, workers, code=brought, cpus=cpus)
            else:
                from tuneparts.executors import ray

                ray.run(plan, folder, address, storage, code=brought, cpus=cpus)
            status: Literal["done", "interrupted"] = "done"
        except KeyboardInterrupt:
            status = "interrupted"
        finally:
            journal.close()
            if cleaner is not None:
                cleaner.close()
    return Ending(status, time.monotonic() - start)
