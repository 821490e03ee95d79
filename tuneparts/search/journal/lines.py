"""How an event is written as one line of a file, and read again."""

import json
from typing import Any

from tuneparts.core.errors import DataError
from tuneparts.search.journal.events import (
    Event,
    ReplicateStopped,
    ResultTold,
    RoundFailed,
    Row,
    TrialEnded,
    TrialId,
    TrialRetried,
    TrialRunning,
    TrialStarted,
    TrialVoided,
)

VERSION = 4
"""Of the format; a file of another one is refused."""
_KINDS: dict[str, type[Any]] = {
    "start": TrialStarted,
    "run": TrialRunning,
    "row": Row,
    "end": TrialEnded,
    "round_failed": RoundFailed,
    "retry": TrialRetried,
    "void": TrialVoided,
    "stop": ReplicateStopped,
    "told": ResultTold,
}
_NAMES = {cls: kind for kind, cls in _KINDS.items()}


def encode(event: Event) -> str:
    """Write an event as one line of a journal."""
    # Not `asdict`, which copies every config in depth: an event is written as it is.
    return json.dumps({"kind": _NAMES[type(event)], **vars(event), "trial": str(event.trial)})


def is_header(line: str) -> bool:
    """Whether a line is the first of a file, which names the version of the format.

    Raises:
        DataError: The version is not that of this code.
    """
    if not line.startswith('{"kind": "version"'):
        return False
    version = json.loads(line)["version"]
    if version != VERSION:
        raise DataError(
            f"journal format {version}: another version of tuneparts wrote it, and this one reads "
            f"format {VERSION}. Read it with that version."
        )
    return True


def decode(line: str) -> Event:
    """Read one line of a journal, other than the header, as its event.

    It raises a builtin error for anything else.
    """
    values = json.loads(line)
    cls = _KINDS[values.pop("kind")]
    event: Event = cls(**{**values, "trial": TrialId.parse(values["trial"])})
    return event
