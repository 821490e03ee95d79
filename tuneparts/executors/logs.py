"""The log of a trial: what it prints, warnings, log records, where it ran and why it failed.

It lies beside the checkpoints of the trial, so it outlives the worker and can be read while the
trial runs. Only the newest lines are kept, so that a trial that prints at every step fills no disk.
"""

import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TextIO, cast

from tuneparts import redaction
from tuneparts.journal import TrialId
from tuneparts.search.storage import Folder

NUM_LINES = 200
"""Lines kept per trial."""
_NAME = "log.txt"


def read(storage: Folder, trial: TrialId) -> list[str]:
    """Read the newest lines of a trial's log, oldest first; none when it has not begun."""
    folder = _folder(storage, trial)
    return folder.read(_NAME).decode().splitlines() if _NAME in folder.names() else []


class TrialLog:
    """The log of one trial, written by the worker that runs it.

    Example:
        >>> import tempfile
        >>> storage, trial = Folder(tempfile.mkdtemp()), TrialId("none", 0, 0)
        >>> log = TrialLog(storage, trial)
        >>> log.add("hello")
        >>> log.keep()
        >>> [line.split()[1] for line in read(storage, trial)]
        ['hello']
    """

    def __init__(self, storage: Folder, trial: TrialId) -> None:
        self._folder = _folder(storage, trial)
        self._lines = read(storage, trial)  # of the worker before, where one died
        self._redactor = redaction.of_process()
        self._is_news = False

    def add(self, text: str) -> None:
        """Append lines, each with the time of day; secrets in them are masked."""
        now = time.strftime("%H:%M:%S")
        lines = [f"{now} {line}" for line in self._redactor.text(text).splitlines() if line.strip()]
        self._lines = [*self._lines, *lines][-NUM_LINES:]
        self._is_news = self._is_news or bool(lines)

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Add what is printed to stdout or stderr inside the block; it is still printed too."""
        out, err = _Tee(sys.stdout), _Tee(sys.stderr)
        try:
            with redirect_stdout(cast(TextIO, out)), redirect_stderr(cast(TextIO, err)):
                yield
        finally:
            self.add("".join(out.said))
            self.add("".join(err.said))

    def keep(self) -> None:
        """Write the log to the storage if something was added."""
        if self._is_news:
            self._folder.write(_NAME, ("\n".join(self._lines) + "\n").encode())
            self._is_news = False


class _Tee:
    """A stream that remembers what went through it; all else is the stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.said: deque[str] = deque(maxlen=100 * NUM_LINES)

    def write(self, text: str) -> int:
        self.said.append(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def _folder(storage: Folder, trial: TrialId) -> Folder:
    return storage.child(*str(trial).split("/"), "log")
