"""Track a search in MLflow from its own thread, so that training never waits for a store.

`Tracker` follows the journal of a search that runs; `sync` replays the journal of one that does
not, into a store that missed something or never had it.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneparts.core.errors import ConfigError
from tuneparts.core.redaction import redact
from tuneparts.search.events import Event, TrialId, TrialRunning, TrialStarted
from tuneparts.tracking import store
from tuneparts.tracking._replay import Replay
from tuneparts.tracking.card import SearchCard
from tuneparts.tracking.record import Status

_LONGEST_DELAY = 15.0
"""Most seconds between two attempts."""
_log = logging.getLogger(__name__)


class Tracker(Replay):
    """Mirrors a search that runs to MLflow: one parent run, and one child run per trial.

    Everything is read from the journal, so an event must be there before `on_event` is called; a
    batch is sent after `interval` seconds. Over the folder of a former process it goes on with the
    same MLflow runs. A trial that failed gets `read_log` of it as the artifact `log.txt`.
    """

    def __init__(
        self, uri: str, *, folder: Path, search: SearchCard, interval: float = 1.0,
        read_log: Callable[[TrialId], str] = lambda _: "",
    ) -> None:  # fmt: skip
        uri, now = store.resolve(uri), time.time()
        super().__init__(uri, folder=folder, card=search, start=now, read_log=read_log)
        if self.record.ending is not None:  # by a former process
            self.record.save(ending=None)
        # To import MLflow takes seconds, in which workers start and the first of them report.
        self.writer = _Writer(self.advance, self.calls, interval=interval, patience=10.0)

    def on_event(self, event: Event) -> None:
        if isinstance(self.refusal, ConfigError):  # better now than after the last trial
            raise self.refusal
        self.writer.wake(is_urgent=not isinstance(event, TrialStarted | TrialRunning))

    def _ask(self, request: Callable[[], None], **record: Any) -> None:
        super()._ask(request, **record)
        self.writer.wake()

    def tagged(self, name: str, value: str) -> set[TrialId]:
        return {trial for trial, tags in self.record.tags.items() if tags.get(name) == value}

    def flush(self, timeout: float = 60.0) -> bool:
        """Wait until everything so far is in the store; returns whether it is."""
        return self.writer.flush(timeout)

    def close(self, status: Status = "FINISHED", *, timeout: float = 30.0) -> list[str]:
        """End the parent run; after `timeout` seconds of no progress the rest is left to `sync`."""
        self.end(status, time.time())
        _finish(self, self.writer, timeout)
        return self.calls.problems.lines()


@dataclass(frozen=True)
class _Synced:
    """What `sync` did: runs that it created and points that it sent, and whether that was all."""

    parent_run_id: str | None  # None when the store never answered
    runs: int
    points: int
    is_complete: bool
    problems: list[str]


def sync(
    folder: Path, uri: str, card: SearchCard, *, timeout: float = 30.0, **more: Any
) -> _Synced:
    """Send what a store lacks of a run that no process drives; hold the run's lock.

    A run that was interrupted ends as KILLED. After `timeout` seconds without progress it gives up.
    `more` is what `Replay` takes: `on_progress`, called from another thread, and `read_log`.
    """
    uri = store.resolve(uri)
    store.client(uri)  # refuses what is no store at once
    replay = Replay(uri, folder=folder, card=card, start=None, **more)
    replay.finish_as_recorded()
    is_complete = _finish(replay, _Writer(replay.advance, replay.calls), timeout)
    points, problems = replay.calls.points, replay.calls.problems.lines()
    return _Synced(replay.parent_run_id, replay.created, points, is_complete, problems)


def _finish(replay: Replay, writer: "_Writer", timeout: float) -> bool:
    is_complete = writer.close(timeout)
    if not is_complete:
        folder = replay.record.folder
        text = (
            f"the store did not answer for {timeout:g} s ({writer.last_error}); the journal has "
            f"everything. Run `tuneparts sync {folder.parent.name}/{folder.name}` when it is back."
        )
        replay.calls.problems.add("not in the store", text, writer.waiting)
    return is_complete


class _Writer:
    """A thread that calls `advance` about once a second while there is news, until it succeeds.

    It starts after `patience` seconds, or when something urgent is to be sent.
    """

    def __init__(
        self, advance: Callable[[], None], calls: store._Calls, *, interval: float = 1.0,
        first_delay: float = 0.25, patience: float = 0.0,
    ) -> None:  # fmt: skip
        self.retries = 0
        self.last_error: str | None = None
        """Why the store takes nothing right now; None when it does."""
        self._advance = advance
        self._calls = calls
        self._interval = interval
        self._first_delay = first_delay
        self._changed = threading.Condition()
        self._asked = self._done = 0  # how often it was woken, and how many of these have arrived
        self._patience, self._urgent = patience, threading.Event()
        self._hurry, self._abandoned = threading.Event(), threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return self._asked - self._done

    def wake(self, *, is_urgent: bool = True) -> None:
        if is_urgent:
            self._urgent.set()
        with self._changed:
            self._asked += 1
            self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        """Wait until everything so far has arrived; returns whether it has."""
        self.wake()
        self._hurry.set()
        with self._changed:
            wanted = self._asked
            return self._changed.wait_for(lambda: self._done >= wanted, timeout)

    def close(self, timeout: float) -> bool:
        """Send what is left and end the thread; gives up after `timeout` seconds of no progress."""
        self._closing = True
        self.wake()
        self._hurry.set()
        made, since = self._calls.made, time.monotonic()
        while self._thread.is_alive():
            self._thread.join(0.05)
            if self._calls.made != made:
                made, since = self._calls.made, time.monotonic()
            elif time.monotonic() - since > timeout:
                self._abandoned.set()
                self._hurry.set()
                return False
        return not self._abandoned.is_set()

    def _run(self) -> None:
        self._urgent.wait(self._patience)
        while self._deliver():
            if self._closing and self.waiting == 0:
                return
            with self._changed:
                self._changed.wait_for(lambda: self.waiting > 0)
            # Gather: a batch costs about as much as a point.
            self._hurry.wait(self._interval)

    def _deliver(self) -> bool:
        delay = self._first_delay
        while not self._abandoned.is_set():
            self._hurry.clear()
            asked = self._asked
            try:
                self._advance()
            except Exception as error:  # whatever it is, training must go on
                self.retries += 1
                text = redact(str(error))
                if self.last_error is None:
                    _log.warning("tracking: the store does not answer, training goes on: %s", text)
                self.last_error = text.partition("\n")[0] or type(error).__name__
            else:
                if self.last_error is not None:
                    _log.warning("tracking: the store answers again")
                self.last_error = None
                with self._changed:
                    self._done = asked
                    self._changed.notify_all()
                return True
            # A flush wants the next attempt now, but not a busy loop.
            self._hurry.wait(min(delay, 0.5) if self._closing else delay)
            delay = min(2 * delay, _LONGEST_DELAY)
        return False
