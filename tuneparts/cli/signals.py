"""Signals that end a search as Ctrl-C does: what is running is kept, and said how to continue."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def as_ctrl_c() -> Iterator[list[int]]:
    """Let SIGTERM and SIGHUP interrupt the block; yields the list of those that came.

    Batch systems and containers send SIGTERM, a closed terminal SIGHUP. The first one interrupts,
    more of them are not heard while the search is put away.

    Example:
        >>> with as_ctrl_c() as came:
        ...     try:
        ...         signal.raise_signal(signal.SIGTERM)
        ...     except KeyboardInterrupt:
        ...         print("interrupted by", came)
        interrupted by [15]
    """
    came: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        came.append(number)
        for ending in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(ending, signal.SIG_IGN)
        if number == signal.SIGHUP:
            _leave_terminal()
        raise KeyboardInterrupt

    before = {n: signal.signal(n, interrupt) for n in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_terminal() -> None:
    """Print into nothing from now on: a terminal that is gone refuses every word."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        if os.isatty(stream):
            os.dup2(nowhere, stream)
    os.close(nowhere)
