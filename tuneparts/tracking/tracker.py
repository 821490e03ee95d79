"""Track a search in MLflow from a thread of its own, so that training never waits for a store.

`Tracker` follows the journal of a search that runs; `sync` replays the journal of one that does
not, into a store that missed something or never had it.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from tuneparts.core.errors import ConfigError
from tuneparts.core.redaction import redact
from tuneparts.search.events import Event, Row, TrialId
from tuneparts.tracking import store
from tuneparts.tracking.card import SearchCard
from tuneparts.tracking.record import Status
from tuneparts.tracking.replay import Replay

__all__ = ["SearchCard", "Stats", "Status", "Synced", "Tracker", "sync"]

_OPENING = 60.0
"""Most seconds that a flush waits for MLflow to be imported; the wait for what was sent follows."""
_PATIENCE = 10.0
"""Most seconds before MLflow is imported, which the first row of a trial ends earlier."""
_log = logging.getLogger(__name__)


class Tracker:
    """Mirrors a search that runs to MLflow: one parent run, and one child run per trial.

    Everything is read from `journal.jsonl` in the run's folder, so an event must be in the journal
    before `on_event` is called. A tracker over the folder of a former process goes on with the
    same MLflow runs.
    """

    def __init__(
        self,
        uri: str,
        *,
        folder: Path,
        search: SearchCard,
        read_log: Callable[[TrialId], str] = lambda _: "",
        interval: float = 1.0,
    ) -> None:
        """Start the thread, which opens the store; a server need not answer yet.

        Events are gathered for `interval` seconds before they are sent. A trial that failed gets
        its log, which `read_log` gives, as the artifact `log.txt`.
        """
        uri = store.resolve(uri)
        self._replay = Replay(
            partial(store.client, uri),
            uri=uri,
            folder=folder,
            card=search,
            start=time.time(),
            read_log=read_log,
        )
        self._replay.reopen()
        self._writer = Writer(
            self._replay,
            interval=interval,
            open_store=self._replay.client.open,
            patience=_PATIENCE,
        )

    def on_event(self, event: Event) -> None:
        """Say that the journal has an event more; takes microseconds, without I/O.

        Raises:
            ConfigError: The store cannot be opened. Better now than after the last trial; the run
                can be resumed.
        """
        if isinstance(self._replay.refusal, ConfigError):
            raise self._replay.refusal
        self._writer.wake()
        if isinstance(event, Row):
            self._writer.open()

    def log_artifact(self, path: Path) -> None:
        """Copy a file or folder to the parent run; it must stay in place until flushed."""
        self._replay.log_artifact(path)
        self._writer.wake()

    def describe(self, answer: str) -> None:
        """Put the answer, in Markdown, into the description of the parent run."""
        self._replay.describe(answer)
        self._writer.wake()

    def tag_trial(self, trial: TrialId, tags: Mapping[str, str]) -> None:
        """Add tags to the run of a trial that is in the journal."""
        self._replay.tag_trial(trial, tags)
        self._writer.wake()

    def tagged(self, name: str, value: str) -> set[TrialId]:
        """The trials that `tag_trial` gave this tag, also in a former process."""
        known = self._replay.record.tags
        return {trial for trial, tags in known.items() if tags.get(name) == value}

    def run_id(self, trial: TrialId) -> str | None:
        """MLflow's run id of a trial; None when the store has no run of it, or not yet."""
        return self._replay.run_id(trial)

    def flush(self, timeout: float = 60.0) -> bool:
        """Wait until everything so far is in the store; returns whether it is."""
        return self._writer.flush(timeout)

    def close(self, status: Status = "FINISHED", *, timeout: float = 30.0) -> list[str]:
        """End the parent run, end what still runs as KILLED, and return the problems.

        Gives up after `timeout` seconds without progress. What is then missing in the store is
        still in the run's folder, and `sync` sends it.
        """
        self._replay.end(status, time.time())
        _finish(self._replay, self._writer, timeout)
        return self.problems()

    def problems(self) -> list[str]:
        """What could not be tracked, one line per kind; empty when all is well."""
        return self._replay.calls.problems.lines()

    @property
    def stats(self) -> "Stats":
        """Points sent, items waiting, retries and the last error."""
        return self._writer.stats

    @property
    def parent_run_id(self) -> str | None:
        """MLflow's run id of the search; None until the store has answered once."""
        return self._replay.parent


@dataclass(frozen=True)
class Synced:
    """What `sync` did: runs that it created and points that it sent.

    `parent_run_id` is None when the store never answered. Everything is in the store if
    `is_complete`, save for what the problems name, one line per kind.
    """

    parent_run_id: str | None
    runs: int
    points: int
    is_complete: bool
    problems: list[str]


def sync(
    folder: Path,
    uri: str,
    card: SearchCard,
    *,
    timeout: float = 30.0,
    on_progress: Callable[[int], None] = lambda _: None,
    read_log: Callable[[TrialId], str] = lambda _: "",
) -> Synced:
    """Send what a store lacks of a run that no process drives; hold the run's lock.

    The journal is replayed from its first event, with the description, the tags and the report that
    the run's folder holds. What the store has is left alone, so a second call changes nothing. A
    run that was interrupted ends as KILLED. After `timeout` seconds without progress it gives up.
    `on_progress` gets how many bytes of the journal have arrived, from another thread.
    """
    uri = store.resolve(uri)
    client = store.client(uri)  # refuses what is no store at once
    replay = Replay(
        lambda: client,
        uri=uri,
        folder=folder,
        card=card,
        start=None,
        on_progress=on_progress,
        read_log=read_log,
    )
    replay.start_over()
    is_complete = _finish(replay, Writer(replay), timeout)
    calls = replay.calls
    return Synced(replay.parent, replay.created, calls.points, is_complete, calls.problems.lines())


def _finish(replay: Replay, writer: "Writer", timeout: float) -> bool:
    """Send what is left; what the store does not take in time becomes a problem."""
    is_complete = writer.close(timeout)
    if not is_complete:
        folder, stats = replay.record.folder, writer.stats
        replay.calls.problems.add(
            "not in the store",
            f"the store did not answer for {timeout:g} s ({stats.last_error}); the journal has "
            f"everything. Run `tuneparts sync {folder.parent.name}/{folder.name}` when it is back.",
            stats.waiting,
        )
    return is_complete


@dataclass(frozen=True)
class Stats:
    """How the thread is doing: points sent, events and requests that wait, failed attempts.

    `last_error` is why the store takes nothing right now, None when it does.
    """

    sent: int
    waiting: int
    retries: int
    last_error: str | None


class _Counts(Protocol):
    made: int
    """Calls that succeeded; the sign of progress."""
    points: int


class _Sink(Protocol):
    """What the writer's thread calls; `Replay`, or a fake in tests."""

    @property
    def calls(self) -> _Counts: ...

    def advance(self) -> None:
        """Send all there is. After a failure the next call goes on where this one stopped."""


class Writer:
    """A thread that calls `advance` about once a second while there is news, until it succeeds.

    Nothing waits in memory: a call of `wake` only counts, and what is to be sent is on disk.
    """

    def __init__(
        self,
        sink: _Sink,
        *,
        interval: float = 1.0,
        many: int = 5000,
        first_delay: float = 0.25,
        longest_delay: float = 15.0,
        open_store: Callable[[], None] = lambda: None,
        patience: float = 0.0,
    ) -> None:
        self._sink = sink
        self._interval = interval
        self._many = many
        self._first_delay = first_delay
        self._longest_delay = longest_delay
        self._changed = threading.Condition()
        self._asked = 0
        self._done = 0
        """How many of the asked-for have arrived. Guarded, as `_asked` is, by `_changed`."""
        self._news = threading.Event()
        self._hurry = threading.Event()
        self._abandoned = threading.Event()
        self._open_store = open_store
        self._patience = patience
        self._wanted = threading.Event()
        self._opened = threading.Event()
        self._closing = False
        self._retries = 0
        self._last_error: str | None = None
        self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Say that there is something more to send; returns at once."""
        with self._changed:
            self._asked += 1
            # A store that is away is not asked more often because more is waiting.
            is_many = self._asked - self._done >= self._many and self._last_error is None
        self._news.set()
        if is_many:
            self._hurry.set()

    def open(self) -> None:
        """Open the store now, if it is not open; returns at once."""
        self._wanted.set()

    def _now(self) -> None:
        self.wake()
        self.open()
        self._hurry.set()

    def flush(self, timeout: float) -> bool:
        """Wait until everything so far has arrived; returns whether it has."""
        self._now()
        self._opened.wait(_OPENING)
        with self._changed:
            wanted = self._asked
            return self._changed.wait_for(lambda: self._done >= wanted, timeout)

    def close(self, timeout: float) -> bool:
        """Send what is left and end the thread; returns whether everything arrived.

        Gives up after `timeout` seconds without progress, not before a long journal is sent.
        """
        self._closing = True
        self._now()
        made, since = self._sink.calls.made, time.monotonic()
        while self._thread.is_alive():
            self._thread.join(0.05)
            if self._sink.calls.made != made:
                made, since = self._sink.calls.made, time.monotonic()
            elif time.monotonic() - since > timeout:
                self._abandoned.set()
                self._hurry.set()
                return False
        return not self._abandoned.is_set()

    @property
    def stats(self) -> Stats:
        """A snapshot."""
        waiting = self._asked - self._done
        return Stats(self._sink.calls.points, waiting, self._retries, self._last_error)

    def _run(self) -> None:
        # A search that starts needs the interpreter itself, and importing MLflow would take it.
        # Still, the parent run should be there early.
        self._wanted.wait(self._patience)
        with suppress(Exception):  # the first attempt meets it again, and notes it
            self._open_store()
        self._opened.set()
        while self._deliver():
            if self._closing and self._done == self._asked:
                return
            self._news.wait()
            # Gather: a batch costs about as much as a point.
            self._hurry.wait(self._interval)

    def _deliver(self) -> bool:
        """Repeat `advance` until it succeeds; false when abandoned."""
        delay = self._first_delay
        while not self._abandoned.is_set():
            self._news.clear()
            self._hurry.clear()
            asked = self._asked
            try:
                self._sink.advance()
            except Exception as error:  # whatever it is, training must go on
                self._retries += 1
                text = redact(str(error))
                if self._last_error is None:
                    _log.warning("tracking: the store does not answer, training goes on: %s", text)
                self._last_error = text.partition("\n")[0] or type(error).__name__
            else:
                if self._last_error is not None:
                    _log.warning("tracking: the store answers again")
                self._last_error = None
                with self._changed:
                    self._done = asked
                    self._changed.notify_all()
                return True
            # A flush wants the next attempt now, but not a busy loop.
            self._hurry.wait(min(delay, 0.5) if self._closing else delay)
            delay = min(2 * delay, self._longest_delay)
        return False
