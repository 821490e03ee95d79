"""Looks after the intervals of a worker: ends one that hangs, and measures what it uses."""

import faulthandler
import gc
import math
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

IN_WORKER = "TUNEPARTS_IN_WORKER"
"""Set in the environment of worker processes, which start no search of their own."""
GRACE = 30.0
"""Seconds after which the worker ends even where no Python code can run any more."""
_HOUR = 3600.0


class _Watch:
    """One thread for all limits of this process; one for each interval would cost more."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._limits: dict[object, tuple[float, Callable[[], None]]] = {}
        self._wakes = math.inf
        self._pid = -1

    def add(self, seconds: float, leave_word: Callable[[], None]) -> object:
        key, end = object(), time.monotonic() + seconds
        with self._change:
            self._limits[key] = end, leave_word
            if self._pid != os.getpid():  # the thread of a process that forked is not here
                self._pid = os.getpid()
                threading.Thread(target=self._run, daemon=True).start()
            elif end < self._wakes:
                self._change.notify()
        return key

    def remove(self, key: object) -> None:
        with self._change:
            del self._limits[key]

    def _run(self) -> None:
        with self._change:
            while True:
                now = time.monotonic()
                over = [word for end, word in self._limits.values() if end <= now]
                if over:
                    break
                self._wakes = min((end for end, _ in self._limits.values()), default=now + _HOUR)
                self._change.wait(self._wakes - now)
        try:
            over[0]()
        finally:
            os._exit(1)


_watch = _Watch()


@contextmanager
def limit(seconds: float, leave_word: Callable[[], None]) -> Iterator[None]:
    """End this process if the block takes longer; the executor then starts the segment again.

    `leave_word` is called in another thread just before, to record what hung, unless compiled code
    holds the interpreter.
    """
    key = _watch.add(seconds, leave_word)
    faulthandler.dump_traceback_later(seconds + GRACE, exit=True, file=sys.__stderr__ or 2)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        _watch.remove(key)


def cuda_in_use() -> Any:
    """`torch.cuda` if this process uses it, else None; imports nothing."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None


_MEGABYTE = 1e6
_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes in which the system counts the memory of a process."""


class Usage:
    """Measures this process from its making on; costs microseconds, and needs no other package.

    Names begin with `system/`, which MLflow shows on another page.
    """

    def __init__(self) -> None:
        self._seconds = time.perf_counter()
        self._cpu = time.process_time()
        if (cuda := cuda_in_use()) is not None:
            cuda.reset_peak_memory_stats()

    def metrics(self) -> dict[str, float]:
        seconds = max(time.perf_counter() - self._seconds, 1e-9)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT
        found = {
            "system/cpu": (time.process_time() - self._cpu) / seconds,
            "system/memory": peak / _MEGABYTE,
        }
        if (cuda := cuda_in_use()) is not None:
            found["system/gpu_memory"] = cuda.max_memory_allocated() / _MEGABYTE
        return found


def set_threads(threads: int) -> None:
    """Let torch use so many threads, if this process has imported it."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


def give_back_memory() -> None:
    """Give the memory of a learner that is gone back to the GPU, which other processes share."""
    if (cuda := cuda_in_use()) is not None:
        gc.collect()
        cuda.empty_cache()
