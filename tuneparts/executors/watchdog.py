"""Ends a worker process whose interval takes too long."""

import faulthandler
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
