"""What a worker uses of its machine while it trains: CPU, memory and GPU memory."""

import resource
import sys
import time

import torch

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
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.reset_peak_memory_stats()

    def metrics(self) -> dict[str, float]:
        """Cores that were busy on average, and peaks of memory in megabytes."""
        seconds = max(time.perf_counter() - self._seconds, 1e-9)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT
        found = {
            "system/cpu": (time.process_time() - self._cpu) / seconds,
            "system/memory": peak / _MEGABYTE,
        }
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            found["system/gpu_memory"] = torch.cuda.max_memory_allocated() / _MEGABYTE
        return found
