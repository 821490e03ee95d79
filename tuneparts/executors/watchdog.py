"""Looks after the intervals of a worker: ends one that hangs, and measures what it uses."""

import faulthandler
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

GRACE = 30.0
"""Seconds after which the worker ends even where no Python code can run any more."""


@contextmanager
def limit(seconds: float, leave_word: Callable[[], None]) -> Iterator[None]:
    """End this process if the block takes longer; the executor then starts the segment again.

    A block that hangs cannot be asked to stop, so the process has to end. Where it hangs inside
    compiled code that holds the interpreter, `leave_word` is not called, and the process ends
    some seconds later.

    Args:
        seconds: how long the block may take.
        leave_word: called in another thread just before the end, to record what hung.
    """

    def expire() -> None:
        try:
            leave_word()
        finally:
            os._exit(1)

    timer = threading.Timer(seconds, expire)
    timer.daemon = True
    timer.start()
    faulthandler.dump_traceback_later(seconds + GRACE, exit=True, file=sys.__stderr__ or 2)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        timer.cancel()


def cuda_in_use() -> Any:
    """`torch.cuda` if this process uses it, else None; imports nothing."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None


_MEGABYTE = 1e6
_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes in which the system counts the memory of a process."""


class Usage:
    """Measures this process from its making on; costs microseconds, and needs no other package.

    Names begin with `system/`, which MLflow shows on a page of its own.

    Example:
        >>> usage = Usage()
        >>> sorted(usage.metrics())
        ['system/cpu', 'system/memory']
    """

    def __init__(self) -> None:
        self._seconds = time.perf_counter()
        self._cpu = time.process_time()
        if (cuda := cuda_in_use()) is not None:
            cuda.reset_peak_memory_stats()

    def metrics(self) -> dict[str, float]:
        """Cores that were busy on average, and peaks of memory in megabytes."""
        seconds = max(time.perf_counter() - self._seconds, 1e-9)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT
        found = {
            "system/cpu": (time.process_time() - self._cpu) / seconds,
            "system/memory": peak / _MEGABYTE,
        }
        if (cuda := cuda_in_use()) is not None:
            found["system/gpu_memory"] = cuda.max_memory_allocated() / _MEGABYTE
        return found
