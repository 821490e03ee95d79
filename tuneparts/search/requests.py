"""Requests to the driver of a run, from another process: files in a folder of the run.

Whoever sees the run's folder can ask, on this machine or on another one. The driver looks about
once a second, writes what it does into the journal, and removes the file.
"""

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tuneparts import atomic
from tuneparts.errors import StorageError
from tuneparts.journal import TrialId

FOLDER = "requests"
_SECONDS_BETWEEN_LOOKS = 1.0


@dataclass(frozen=True)
class StopRequest:
    """Stop a trial, an arm, or all of a run."""

    message: str
    """Who asks; it becomes the reason in the journal."""
    arm: str | None = None
    """None for all arms."""
    trial: str | None = None
    """One trial of the arm, as text; None for all."""


def ask(folder: Path, request: StopRequest) -> Path:
    """Leave a request in the folder of a run; returns the file, which goes when it is done."""
    path = folder / FOLDER / f"stop-{time.time_ns()}-{uuid.uuid4().hex}.json"
    try:
        atomic.write_text(path, json.dumps(asdict(request)))
    except OSError as error:
        raise StorageError(f"a request is a file of the run, but: {error}") from error
    return path


class Inbox:
    """The requests to a run, as its driver sees them.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = ask(folder, StopRequest("asked for by me", arm="random"))
        >>> [request.arm for request in Inbox(folder).take()]
        ['random']
        >>> list(Inbox(folder).take())
        []
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._looked = -_SECONDS_BETWEEN_LOOKS

    def take(self) -> Iterator[StopRequest]:
        """Yield what is new, oldest first; a request is removed once it has been dealt with."""
        now = time.monotonic()
        if now - self._looked < _SECONDS_BETWEEN_LOOKS:
            return
        self._looked = now
        for path in sorted(self._folder.glob("stop-*.json")):
            with suppress(OSError, ValueError, TypeError):  # not one of ours
                yield StopRequest(**json.loads(path.read_text("utf-8")))
            path.unlink(missing_ok=True)


def named_trial(text: str) -> TrialId | None:
    """The trial of this name; None if it is no name of one."""
    try:
        return TrialId.parse(text)
    except ValueError:
        return None
