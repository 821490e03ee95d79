"""Runs a plan on this machine without Ray: in this process, or in a pool of processes.

A pool's workers stay from the first trial to the last. One that dies is replaced, and its segment
is started again from the last checkpoint, as Ray does it. Workers die with the driver.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from types import ModuleType
from typing import Any

from tuneparts.core.errors import ConfigError, StorageError, WorkerError
from tuneparts.core.provenance import usable_cpus
from tuneparts.executors.packed import GroupExecution, deliver_all, gives_up
from tuneparts.executors.place import bundle, num_trials, refuse_unplaceable, slots
from tuneparts.executors.worker import Report, TrialSetting, give_back_memory, set_threads
from tuneparts.search.code import Code
from tuneparts.search.groups import Group, Groups
from tuneparts.search.plan import Plan
from tuneparts.search.spec import Search
from tuneparts.training.process import keep_freed_memory

_PAUSE = 1.0
"""Seconds before storage that did not answer is tried again."""
_LOOK = 1.0
"""Seconds between two looks at workers that say nothing."""
_STARTING = threading.Lock()


def run(
    plan: Plan,
    storage: str,
    workers: int | None = None,
    *,
    code: Code | None = None,
    cpus: float | None = None,
) -> None:
    """Run the plan to its end.

    Args:
        plan: what is left of a search.
        storage: where checkpoints lie.
        workers: processes beside this one; 1 runs all in this process. As many as the machine has
            room for, but not more than trials, when not given.
        code: what the search brings along.
        cpus: how many CPUs to fill, when `workers` is not given; all that this process may use
            when not given.

    Raises:
        StorageError: A disk is full.
        PlacementError: A trial needs more than this machine has.
        WorkerError: Worker processes do not start.
    """
    room = room_for(plan.search, cpus)
    # A pool takes seconds to start, and a single trial gains nothing from one.
    workers = min(room, num_trials(plan.search)) if workers is None else workers
    if workers < 1:
        raise ConfigError(f"a search needs at least one worker, but got {workers}.")
    setting = TrialSetting.of(plan.search, storage, code, plan.journal.path.parent)
    if workers == 1:
        for _ in in_this_process(plan, setting):
            pass
    else:
        _in_processes(plan, setting, workers)


def room_for(search: Search, cpus: float | None = None) -> int:
    """Count the trials that this machine can run side by side, whichever arm they are of.

    Only one GPU counts: local workers all use the first one, and share it if their arms ask for
    fractions of it. Use Ray for more.

    Raises:
        PlacementError: A trial needs more than this machine has.
    """
    machine = {
        "CPU": float(usable_cpus() if cpus is None else cpus),
        "GPU": float(_has_gpu()) if any(arm.resources.gpus for arm in search.arms) else 0.0,
        "memory": float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
    }
    needs = {arm.name: [bundle(arm.resources)] for arm in search.arms}
    refuse_unplaceable(needs, [machine])
    return min(slots(trial, [machine]) for trial in needs.values())


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def in_this_process(plan: Plan, setting: TrialSetting) -> Iterator[Report]:
    """Run the plan here, one trial after another, and pause after each report.

    What would only kill a worker (no memory left, an interval that hangs) kills this process too;
    the run can then be resumed.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from tuneparts.search.journal import Journal
        >>> from tuneparts.search import load
        >>> search = load.load("rotated_digits", scale="smoke", arms=["none"], seeds=[0])
        >>> folder = Path(tempfile.mkdtemp())
        >>> plan = Plan(search, Journal(folder / "journal.jsonl"))
        >>> reports = in_this_process(plan, TrialSetting.of(search, str(folder / "trials")))
        >>> next(reports).failure is None
        True
    """
    torch = sys.modules.get("torch")
    threads = None if torch is None else torch.get_num_threads()
    groups = Groups(plan)
    try:
        while (group := groups.take()) is not None:
            yield from _run_here(plan, groups, group, setting)
    finally:
        if threads is not None:
            set_threads(threads)


def _run_here(plan: Plan, groups: Groups, group: Group, setting: TrialSetting) -> Iterator[Report]:
    groups.started(group)
    execution = GroupExecution(group, setting, **_share(plan, group))
    while True:
        try:
            reports = execution.step()
        except StorageError as error:
            if groups.lost(group, "the storage failed", f": {error}"):
                time.sleep(_PAUSE)
            return
        deliver_all(groups, group, reports)
        yield from reports
        plan.look()
        if all(report.done for report in reports) or groups.is_over(group):
            return


def _in_processes(plan: Plan, setting: TrialSetting, workers: int) -> None:
    """Run the plan in so many worker processes."""
    pool: list[_Worker] = []
    groups = Groups(plan)
    try:
        while not plan.done:
            plan.look()
            _end_given_up(groups, pool)
            while len(pool) < workers or any(worker.group is None for worker in pool):
                group = groups.take()
                if group is None:
                    break
                worker = _idle_worker(pool, setting)
                worker.start(group, _share(plan, group))
                if worker.is_ready:
                    groups.started(group)
            for worker in _with_news(pool):
                assert worker.group is not None
                group, reports = worker.group, worker.receive()
                if reports is None or any(report.leave for report in reports):
                    pool.remove(worker)
                    worker.end()
                if reports is None:
                    groups.lost(group)
                else:
                    groups.started(group)  # a new worker's first message says that it is ready
                    deliver_all(groups, group, reports)
            _end_late(groups, pool, setting)
    finally:
        for worker in pool:
            worker.end()


def _end_given_up(groups: Groups, pool: list["_Worker"]) -> None:
    """End the workers of segments that were stopped on their way."""
    for worker in [one for one in pool if one.group and groups.is_over(one.group)]:
        pool.remove(worker)
        worker.end()


def _end_late(groups: Groups, pool: list["_Worker"], setting: TrialSetting) -> None:
    """End the workers of segments that take far too long."""
    for worker in [one for one in pool if one.group is not None]:
        assert worker.group is not None
        seconds = time.monotonic() - worker.since
        if gives_up(groups, worker.group, seconds, setting.storage):
            pool.remove(worker)
            worker.end()


def _share(plan: Plan, group: Group) -> dict[str, Any]:
    """What a trial was given of the machine, as arguments of `SegmentExecution`."""
    resources = plan.search.arm(group.segments[0].trial.arm).resources
    return {"threads": max(1, int(resources.cpus)), "gpus": resources.gpus}


@contextmanager
def _without_main() -> Iterator[None]:
    """Let a process start without running the script again that called us.

    `multiprocessing` would import the main script into every worker, so that one without
    `if __name__ == "__main__":` starts a search in each. Ours need nothing of it: what a search
    brings along is imported by its own name.
    """
    with _STARTING:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


class _Worker:
    """A process of the pool, seen from the driver."""

    def __init__(self, setting: TrialSetting) -> None:
        # Forked from a server that has torch imported: a new worker is there at once. A fork of
        # the driver itself could inherit a lock that one of its threads holds.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, setting))
        with _without_main():
            self._process.start()
        theirs.close()  # so that reading from a dead worker ends instead of waiting
        self.is_ready = False
        self.group: Group | None = None
        self.since = time.monotonic()
        """When it was last heard of, or given a group."""

    def start(self, group: Group, share: dict[str, Any]) -> None:
        self.group, self.since = group, time.monotonic()
        with suppress(OSError):  # it died while it was idle: `receive` finds that out
            self.connection.send((group, share))

    def receive(self) -> list[Report] | None:
        """Take what the worker says of each segment, nothing when it is ready; None if it died."""
        try:
            reports: list[Report] = self.connection.recv()
        except (EOFError, OSError):
            if not self.is_ready:
                self._process.join()
                raise WorkerError(
                    "a worker process must be able to start, but it ended with code "
                    f"{self._process.exitcode} before its first trial. Its last words "
                    "are above; `workers=1` runs the trials in this process."
                ) from None
            return None
        self.is_ready, self.since = True, time.monotonic()
        if reports and all(report.done for report in reports):
            self.group = None
        return reports

    def end(self) -> None:
        """End the process; all that must survive is in the checkpoint store."""
        self._process.kill()
        self._process.join()
        self.connection.close()


def _idle_worker(pool: list[_Worker], setting: TrialSetting) -> _Worker:
    """Take a worker that has nothing to do, or start one."""
    for worker in pool:
        if worker.group is None:
            return worker
    pool.append(_Worker(setting))
    return pool[-1]


def _with_news(pool: list[_Worker]) -> list[_Worker]:
    """Wait a little for busy workers to say something or die."""
    busy: dict[Any, _Worker] = {w.connection: w for w in pool if w.group is not None}
    return [busy[connection] for connection in wait(list(busy), timeout=_LOOK)]


def _serve(connection: Connection, setting: TrialSetting) -> None:
    """Be a worker: execute the segments that the driver sends, until it closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which ends us
    threading.Thread(target=_die_with_the_driver, daemon=True).start()
    keep_freed_memory()
    connection.send([])  # ready; whoever dies before this can run nothing
    with suppress(EOFError, BrokenPipeError):
        while True:
            group, share = connection.recv()
            execution = GroupExecution(group, setting, **share)
            is_done = False
            while not is_done:
                try:
                    reports = execution.step()
                except StorageError:  # it is in the trial's log; the driver starts a new worker
                    raise SystemExit(1) from None
                connection.send(reports)
                is_done = all(report.done for report in reports)
            del execution
            give_back_memory()


def _die_with_the_driver() -> None:
    """End this process when the driver is gone, even in the middle of an interval.

    Otherwise it would write checkpoints beside the workers of a driver that resumes the run.
    """
    driver = multiprocessing.parent_process()
    assert driver is not None
    driver.join()
    os._exit(1)
