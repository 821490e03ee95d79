"""How an event is written as one line of a file, and read again."""

import json
from collections.abc import Callable
from typing import Any, get_args

from tuneparts.errors import DataError
from tuneparts.journal.events import (
    Event,
    Outcome,
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
    for name, value in values.items():
        if not _FIELDS[name](value):
            raise ValueError(f"`{name}` cannot be {value!r:.100}")
    event: Event = cls(**{**values, "trial": TrialId.parse(values["trial"])})
    return event


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_number(value: Any) -> bool:
    return type(value) is float or type(value) is int


_FIELDS: dict[str, Callable[[Any], bool]] = {
    "trial": lambda value: isinstance(value, str),
    "config": lambda value: isinstance(value, dict),
    "time": lambda value: _is_number(value) and abs(value) < 1e12,
    "passes": lambda value: value is None or _is_count(value),
    "donor": lambda value: value is None or isinstance(value, str),
    "step": _is_count,
    "metrics": lambda value: isinstance(value, dict) and all(map(_is_number, value.values())),
    "outcome": lambda value: value in get_args(Outcome),
    "message": lambda value: isinstance(value, str),
    "is_all": lambda value: isinstance(value, bool),
}
"""What a line of a file may hold in each field; files come from anywhere."""
