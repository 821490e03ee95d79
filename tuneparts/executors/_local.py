"""Runs a plan on this machine without Ray: in this process, or in a pool of processes.

A worker that dies is replaced, and its segment is started again from the last checkpoint.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Container, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from multiprocessing.connection import Connection, wait
from types import ModuleType
from typing import Any

from tuneparts.core.errors import StorageError, WorkerError
from tuneparts.core.provenance import usable_cpus
from tuneparts.executors._driver import Job, drive
from tuneparts.executors._watchdog import IN_WORKER, give_back_memory, set_threads
from tuneparts.executors.place import Place, _num_trials, bundle, refuse_unplaceable, slots
from tuneparts.executors.setting import TrialSetting
from tuneparts.executors.worker import Report, reports_of
from tuneparts.search.code import Code
from tuneparts.search.plan import Plan
from tuneparts.search.segment import Group
from tuneparts.search.spec import Search
from tuneparts.training.process import keep_freed_memory

_LOOK = 1.0
"""Seconds between two looks at workers that say nothing."""
_STARTING = threading.Lock()


def run(plan: Plan, storage: str, place: Place, code: Code) -> None:
    """Run the plan to its end, in as many processes as the place says or has room for."""
    room = room_for(plan.search, place.cpus)
    # A pool takes seconds to start, and a single trial gains nothing from one.
    workers = place.workers or min(room, _num_trials(plan.search))
    setting = TrialSetting.of(plan.search, storage, code, plan.journal.path.parent)
    with closing(_Processes(plan.search, setting, workers)) as pool:
        for _ in in_this_process(plan, setting) if workers == 1 else drive(plan, pool):
            pass


def room_for(search: Search, cpus: float | None = None) -> int:
    """Count the trials that this machine can run side by side, whichever arm they are of.

    Only one GPU counts: local workers all use the first one.
    """
    gpus = 0
    if any(arm.resources.gpus for arm in search.arms):
        import torch

        gpus = torch.cuda.is_available()
    machine = {
        "CPU": float(usable_cpus() if cpus is None else cpus),
        "GPU": float(gpus),
        "memory": float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
    }
    needs = {arm.name: [bundle(arm.resources)] for arm in search.arms}
    refuse_unplaceable(needs, [machine])
    return min(slots(trial, [machine]) for trial in needs.values())


def in_this_process(plan: Plan, setting: TrialSetting) -> Iterator[Report]:
    """Run the plan here, one trial after another, and pause after each report."""
    torch = sys.modules.get("torch")
    threads = None if torch is None else torch.get_num_threads()
    try:
        yield from drive(plan, _ThisProcess(plan.search, setting))
    finally:
        if threads is not None:
            set_threads(threads)


def _share(search: Search, group: Group) -> dict[str, Any]:
    resources = search.arm(group.segments[0].trial.arm).resources
    return {"threads": max(1, int(resources.cpus)), "gpus": resources.gpus}


class _ThisProcess:
    """One job at a time; to wait for it is to run its next interval."""

    def __init__(self, search: Search, setting: TrialSetting) -> None:
        self.storage = setting.storage
        self._search, self._setting = search, setting
        self._reports: Iterator[list[Report]] = iter(())

    def open_arms(self, jobs: Sequence[Job]) -> Container[str] | None:
        return () if jobs else None

    def submit(self, group: Group) -> Job:
        self._reports = reports_of(group, self._setting, **_share(self._search, group))
        return Job(group, has_begun=True)

    def wait(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, list[Report] | Exception]]:
        for job in jobs:
            try:
                yield job, next(self._reports)
            except StorageError as error:
                yield job, error

    def end(self, job: Job) -> None:  # noqa: ARG002
        self._reports = iter(())


class _Processes:
    """So many worker processes, each with one job at a time."""

    def __init__(self, search: Search, setting: TrialSetting, workers: int) -> None:
        self.storage = setting.storage
        self._search, self._setting, self._most = search, setting, workers
        self._idle: list[_Worker] = []
        self._busy: dict[Job, _Worker] = {}

    def open_arms(self, jobs: Sequence[Job]) -> Container[str] | None:
        return None if len(jobs) < self._most else ()

    def submit(self, group: Group) -> Job:
        worker = self._idle.pop() if self._idle else _Worker(self._setting)
        job = Job(group, has_begun=worker.is_ready)
        self._busy[job] = worker
        with suppress(OSError):  # it died while it was idle: `wait` finds that out
            worker.connection.send((group, _share(self._search, group)))
        return job

    def wait(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, list[Report] | Exception]]:
        waited_for: dict[Any, Job] = {self._busy[job].connection: job for job in jobs}
        for connection in wait(list(waited_for), timeout=_LOOK):
            job = waited_for[connection]
            worker = self._busy[job]
            try:
                reports: list[Report] = worker.connection.recv()
            except (EOFError, OSError):
                code = self._busy.pop(job).end()
                why = "Its last words are above; `workers=1` runs the trials in this process."
                yield job, WorkerError(f"the process ended with code {code}. {why}")
                continue
            worker.is_ready = True
            if reports and all(report.done and not report.leave for report in reports):
                self._idle.append(self._busy.pop(job))
            yield job, reports

    def end(self, job: Job) -> None:
        self._busy.pop(job).end()

    def close(self) -> None:
        for worker in self._idle:
            worker.end()


class _Worker:
    """A process of the pool, seen from the driver."""

    def __init__(self, setting: TrialSetting) -> None:
        # Forked from a server that has imported what trials need: a new worker is there at once. A
        # fork of the driver itself could inherit a lock that one of its threads holds.
        context = multiprocessing.get_context("forkserver")
        packed = ["tuneparts.executors._packed"] if "torch" in sys.modules else []  # brings torch
        context.set_forkserver_preload([__name__, *packed])
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, setting))
        with _without_main():
            self._process.start()
        theirs.close()  # so that reading from a dead worker ends instead of waiting
        self.is_ready = False

    def end(self) -> int | None:
        """End the process; returns the code that it ended with."""
        self._process.kill()
        self._process.join()
        self.connection.close()
        return self._process.exitcode


@contextmanager
def _without_main() -> Iterator[None]:
    """Let a process start without importing the script again that called us.

    One without `if __name__ == "__main__":` would start a search in each worker.
    """
    with _STARTING:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def _serve(connection: Connection, setting: TrialSetting) -> None:
    """Be a worker: execute what the driver sends, until it closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which ends us
    threading.Thread(target=_die_with_the_driver, daemon=True).start()
    keep_freed_memory()
    os.environ[IN_WORKER] = "1"
    connection.send([])  # ready; whoever dies before this can run nothing
    with suppress(EOFError, BrokenPipeError):
        while True:
            group, share = connection.recv()
            try:
                for reports in reports_of(group, setting, **share):
                    connection.send(reports)
            except StorageError:  # it is in the trial's log; the driver starts a new worker
                raise SystemExit(1) from None
            give_back_memory()


def _die_with_the_driver() -> None:
    """End this process when the driver is gone, even in the middle of an interval.

    Otherwise it would write checkpoints next to the workers of a driver that resumes the run.
    """
    driver = multiprocessing.parent_process()
    assert driver is not None
    driver.join()
    os._exit(1)
