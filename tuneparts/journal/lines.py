"""How an event is written as one line of a file, and read from a file of any version."""

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
"""Of the format that is written. 2: a start says at which passes, and whose state it copies; the
moment when a worker takes a trial up is an event. 3: so is the moment when an algorithm hears a
result, where the order of arrival could matter; trials that no longer count, and replicates that
were stopped. 4: the same events."""
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


def header(line: str) -> int | None:
    """The version that a file's first line names; None for any other line.

    Raises:
        DataError: The version is newer than this code.
    """
    if not line.startswith('{"kind": "version"'):
        return None
    version = int(json.loads(line)["version"])
    if version > VERSION:
        raise DataError(
            f"a journal has at most format {VERSION} here, but this one has {version}: a newer "
            "tuneparts wrote it. Read it with that one."
        )
    return version


def decode(line: str, version: int = VERSION) -> Event:
    """Read one line of a journal as its event; raises a builtin error for anything else.

    Args:
        line: not the header.
        version: of the format that it is written in.
    """
    values = json.loads(line)
    for old in range(version, VERSION):
        values = _MIGRATIONS[old](values)
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


def _from_1(values: dict[str, Any]) -> dict[str, Any]:
    """Starts did not say at which passes they were."""
    return {"passes": None, **values} if values["kind"] == "start" else values


def _as_it_is(values: dict[str, Any]) -> dict[str, Any]:
    """Only kinds of events are new."""
    return values


_MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: _from_1,
    2: _as_it_is,
    3: _as_it_is,
}
"""Version -> how a line of it becomes one of the next."""
