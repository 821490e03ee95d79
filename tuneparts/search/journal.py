"""What happened in a search, in order, on disk before anyone else knows of it.

One line per event; all else can be rebuilt from the file. Appending the same row twice changes
nothing. The first line has the version of the format.
"""

import json
import os
import time
from pathlib import Path
from typing import NoReturn

from tuneparts.core import atomic
from tuneparts.core.errors import StorageError
from tuneparts.search.events import VERSION, Event, TrialId, _encode, read
from tuneparts.search.state import RunState, TrialRecord

_SECONDS_BETWEEN_SYNCS = 1.0
"""How old an event may be before it is on the disk, besides the moments when it must be."""


class Journal:
    """An append-only file of events, and the state that they add up to."""

    def __init__(self, path: Path) -> None:
        self.path = atomic.inside(path.parent, path)
        self.state = RunState()
        self.trials, self.stops = self.state.trials, self.state.stops
        self.events: list[Event] = []
        if path.exists():
            content = path.read_bytes()
            length = content.rfind(b"\n") + 1
            if length < len(content):  # a crash left half a line
                # In place: writing the file anew would lose all of it if the disk is still full.
                os.truncate(self.path, length)
            for event in read(path):
                self._apply(event)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered: a line that a full disk refused must not be written by a later close.
        self._file = path.open("ab", buffering=0)
        self._synced_at = time.monotonic()
        self.is_synced = True
        """Whether all events are on the disk."""
        if path.stat().st_size == 0:
            self._write(json.dumps({"kind": "version", "version": VERSION}).encode() + b"\n")

    def append(self, event: Event) -> bool:
        """Write an event unless the journal has it already; returns whether it was written.

        It then survives the death of this process, and after a second at most, or `sync`, that of
        the machine. Where the disk does not take the line, the journal is closed for good.
        """
        if not self._apply(event):
            return False
        self._write(_encode(event).encode() + b"\n")
        if time.monotonic() - self._synced_at > _SECONDS_BETWEEN_SYNCS:
            self.sync()
        return True

    def sync(self) -> None:
        """Wait until all events are on the disk, where a power cut does not take them.

        Called before what cannot be undone: a next round starts, or checkpoints are removed.
        """
        if self.is_synced:
            return
        try:
            if os.fstat(self._file.fileno()).st_nlink == 0:
                self._file.close()
                raise StorageError(
                    f"{self.path} was removed while the search was running. What MLflow has of it "
                    "stays; start it anew."
                )
            os.fsync(self._file.fileno())
        except (OSError, ValueError) as error:
            self._refuse(str(error))
        self.is_synced = True
        self._synced_at = time.monotonic()

    def _write(self, line: bytes) -> None:
        """Hand a line to the operating system, so that it survives the death of this process."""
        try:
            written = self._file.write(line)
            reason = None if written == len(line) else "the disk took half a line"
        except (OSError, ValueError) as error:  # ValueError: closed by an earlier failure
            reason = str(error)
        if reason is not None:
            self._refuse(reason)
        self.is_synced = False

    def _refuse(self, reason: str) -> NoReturn:
        self._file.close()
        raise StorageError(
            f"{self.path} cannot be written: {reason}. Make space, then run `tuneparts resume`; "
            "nothing is lost."
        )

    def close(self) -> None:
        """Wait until every event is on the disk, and close the file."""
        if not self._file.closed:
            self.sync()
            self._file.close()

    def _apply(self, event: Event) -> bool:
        is_news = self.state.apply(event)
        if is_news:
            self.events.append(event)
        return is_news


def records(path: Path) -> dict[TrialId, TrialRecord]:
    """What a journal file knows of each trial; the file is left as it is."""
    return RunState.read(path).trials
