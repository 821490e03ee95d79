"""One thread between the driver and a slow store: a queue, batches over time, patient retries.

Putting an item costs microseconds and never waits. The thread gathers what came in about a
second, hands it to a sink, and repeats a failed send for as long as it takes; meanwhile items
queue up in memory, and the journal on disk is what survives the process.
"""

import logging
import threading
import time
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from tuneparts.redaction import redact

log = logging.getLogger(__name__)


class Sink(Protocol):
    """Where items go; used by the writer's thread alone."""

    sent: int
    """Points that have arrived."""
    calls: int
    """Calls that succeeded; the sign of progress."""

    def take(self, item: Any) -> None:
        """Fold an item into what is pending; no I/O, no failure."""
        ...

    def send(self) -> None:
        """Send what is pending. After a failure the next call goes on where this one stopped."""
        ...


@dataclass(frozen=True)
class Stats:
    """How the writer is doing, for the live view."""

    sent: int
    """Points in the store."""
    waiting: int
    """Items not yet in the store."""
    retries: int
    """Failed attempts so far."""
    last_error: str | None
    """Why the store does not take anything right now; None when it does."""


class Writer:
    """Drains a queue into a sink from a thread of its own."""

    def __init__(
        self,
        sink: Sink,
        *,
        interval: float = 1.0,
        many: int = 5000,
        first_delay: float = 0.25,
        longest_delay: float = 15.0,
    ) -> None:
        self._sink = sink
        self._interval = interval
        self._many = many
        self._first_delay = first_delay
        self._longest_delay = longest_delay
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._hurry = threading.Event()
        self._abandoned = threading.Event()
        self._closing = False
        self._taken = 0
        self._retries = 0
        self._last_error: str | None = None
        self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)
        self._thread.start()

    def put(self, item: Any) -> None:
        """Queue an item; returns at once."""
        self._queue.put(item)
        if self._queue.qsize() >= self._many:
            self._hurry.set()

    def flush(self, timeout: float) -> bool:
        """Wait until everything put so far has arrived; returns whether it has."""
        barrier = threading.Event()
        self._queue.put(_Barrier(barrier))
        self._hurry.set()
        return barrier.wait(timeout)

    def close(self, timeout: float) -> bool:
        """Send what is left and end the thread; returns whether everything arrived.

        Gives up after `timeout` seconds without progress, not before a long queue is sent.
        """
        self._closing = True
        self._queue.put(_Barrier(threading.Event()))
        self._hurry.set()
        calls, since = self._sink.calls, time.monotonic()
        while self._thread.is_alive():
            self._thread.join(0.05)
            if self._sink.calls != calls:
                calls, since = self._sink.calls, time.monotonic()
            elif time.monotonic() - since > timeout:
                self._abandoned.set()
                self._hurry.set()
                return False
        return not self._abandoned.is_set()

    @property
    def stats(self) -> Stats:
        """A snapshot."""
        waiting = self._queue.qsize() + self._taken
        return Stats(self._sink.sent, waiting, self._retries, self._last_error)

    def _run(self) -> None:
        barriers: list[threading.Event] = []
        while self._deliver():
            for barrier in barriers:
                barrier.set()
            if self._closing and self._queue.empty():
                return
            barriers = self._gather()

    def _gather(self) -> list[threading.Event]:
        """Take items until the interval is over, many wait, or somebody waits for them."""
        items = [self._queue.get()]
        self._hurry.wait(self._interval)
        self._hurry.clear()
        try:
            while True:
                items.append(self._queue.get_nowait())
        except Empty:
            pass
        barriers = []
        for item in items:
            if isinstance(item, _Barrier):
                barriers.append(item.event)
            else:
                self._sink.take(item)
                self._taken += 1
        return barriers

    def _deliver(self) -> bool:
        """Repeat the send until it succeeds; false when abandoned."""
        delay = self._first_delay
        while not self._abandoned.is_set():
            try:
                self._sink.send()
            except Exception as error:  # whatever it is, training must not hear of it
                self._note(error)
            else:
                self._recovered()
                return True
            # Whoever waits for a flush wants the next attempt now, but not a busy loop.
            self._hurry.clear()
            self._hurry.wait(min(delay, 0.5) if self._closing else delay)
            delay = min(2 * delay, self._longest_delay)
        return False

    def _note(self, error: Exception) -> None:
        self._retries += 1
        text = redact(str(error))
        if self._last_error is None:
            log.warning("tracking: the store does not answer, training goes on: %s", text)
        self._last_error = text.partition("\n")[0] or type(error).__name__

    def _recovered(self) -> None:
        if self._last_error is not None:
            log.warning("tracking: the store answers again")
        self._last_error = None
        self._taken = 0


@dataclass(frozen=True)
class _Barrier:
    event: threading.Event
