"""The log of a trial: what it prints, warnings, log records, where it ran and why it failed.

It lies next to the checkpoints of the trial. Only the newest lines are kept.
"""

import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TextIO, cast

from tuneparts.core import redaction
from tuneparts.search.events import TrialId
from tuneparts.search.storage import Folder

NUM_LINES = 200
"""Lines kept per trial."""
_NAME = "log.txt"
_LONGEST_LINE = 1 << 16
"""Characters after which a line that does not end is written."""


def read(storage: Folder, trial: TrialId) -> list[str]:
    """Read the newest lines of a trial's log, oldest first; none when it has not begun."""
    folder = storage.of_trial(trial, "log")
    is_there = _NAME in folder.names()
    return folder.read(_NAME).decode(errors="replace").splitlines() if is_there else []


class _TrialLog:
    """The log of one trial, written by the worker that runs it."""

    def __init__(self, storage: Folder, trial: TrialId) -> None:
        self._folder = storage.of_trial(trial, "log")
        self._lines = read(storage, trial)  # of the worker before, where one died
        self._redactor = redaction.of_process()
        self._is_news = False

    def add(self, text: str) -> None:
        """Append lines, each with the time of day; secrets in them are masked."""
        self._append(self._redactor.text(text))

    def _append(self, masked: str) -> None:
        now = time.strftime("%H:%M:%S")
        lines = [f"{now} {line}" for line in masked.splitlines() if line.strip()]
        self._lines = [*self._lines, *lines][-NUM_LINES:]
        self._is_news = self._is_news or bool(lines)

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Add what is printed to stdout or stderr inside the block; it is still printed too.

        Secrets are masked on both ways: what a worker prints goes into a log of Ray's.
        """
        out, err = _Tee(sys.stdout, self._redactor), _Tee(sys.stderr, self._redactor)
        try:
            with redirect_stdout(cast(TextIO, out)), redirect_stderr(cast(TextIO, err)):
                yield
        finally:
            for tee in (out, err):
                tee.end_line()
                self._append("".join(tee.said))

    def keep(self) -> None:
        """Write the log to the storage if something was added."""
        if self._is_news:
            # Names of files in any encoding come as halves of characters, which UTF-8 lacks.
            text = "\n".join(self._lines) + "\n"
            self._folder.write(_NAME, text.encode(errors="backslashreplace"))
            self._is_news = False


class _Tee:
    """A stream that masks secrets and remembers what it wrote; all else is the stream's own.

    A line is written when it is whole, since a secret may come in pieces.
    """

    def __init__(self, stream: TextIO, redactor: redaction.Redactor) -> None:
        self._stream = stream
        self._redactor = redactor
        self._line: list[str] = []
        self._length = 0
        self.said: deque[str] = deque(maxlen=100 * NUM_LINES)

    def write(self, text: str) -> int:
        self._line.append(text)
        self._length += len(text)
        if "\n" in text or "\r" in text or self._length > _LONGEST_LINE:
            self.end_line()
        return len(text)

    def end_line(self) -> None:
        if self._line:
            masked = self._redactor.text("".join(self._line))
            self._line, self._length = [], 0
            self.said.append(masked)
            encoding = self._stream.encoding or "utf-8"
            self._stream.write(masked.encode(encoding, "backslashreplace").decode(encoding))

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)
