"""Trials that only sleep, as a function for Ray's own `Tuner`.

Only the standard library is imported here, and workers are sent this file by value, so that stock
workers start as fast as Ray can start them.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_PATIENCE = 300.0
"""Seconds that a worker waits for the others to start."""


def gather(folder: str, slots: int) -> None:
    """Wait until so many worker processes have started; later calls of a process return at once.

    A comparison of schedules then does not depend on how long processes take to start.
    """
    mine = Path(folder) / str(os.getpid())
    if mine.exists():
        return
    mine.touch()
    end = time.monotonic() + _PATIENCE
    while len(os.listdir(folder)) < slots and time.monotonic() < end:
        time.sleep(0.02)
    with contextlib.suppress(FileExistsError):
        Path(f"{folder}.began").touch(exist_ok=False)


def began(folder: Path) -> float:
    """When the first worker began its first interval: all were there, or it had no patience."""
    return Path(f"{folder}.began").stat().st_mtime


def trainable(folder: str, slots: int, steps: int) -> Callable[[Mapping[str, Any]], None]:
    """Make the function of a trial, whose config has `drawn`: x, number, seconds of an interval."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])

    def train(config: Mapping[str, Any]) -> None:
        from ray import tune

        gather(folder, slots)
        drawn = config["drawn"]
        for done in range(1, steps + 1):
            time.sleep(drawn["seconds"])
            tune.report({"score": (1 - (drawn["x"] - 0.7) ** 2) * done / steps})

    return train
