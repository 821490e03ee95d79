"""What can happen in a search: one class for each kind of event, one line of a file for each."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from tuneparts.core import atomic
from tuneparts.core.errors import DataError

VERSION = 5
"""Of the format of journals; a file of another one is refused."""
_TRIAL = re.compile(r"([a-z][a-z0-9_]*)/seed(-?\d+)/(\d+)", re.ASCII)


@dataclass(frozen=True, order=True)
class TrialId:
    """One sampled config of one arm under one seed."""

    arm: str
    seed: int
    index: int

    def __str__(self) -> str:
        return f"{self.arm}/seed{self.seed}/{self.index:05d}"

    @classmethod
    def parse(cls, text: str) -> "TrialId":
        """The inverse of `str`; a name that could leave its folder is a ValueError."""
        match = _TRIAL.fullmatch(text)
        if match is None:
            raise ValueError(f"a trial reads `arm/seed0/00000`, but got {text!r:.100}")
        return cls(match[1], int(match[2]), int(match[3]))


@dataclass(frozen=True)
class TrialStarted:
    """A trial got its config, for the first time or a new one, and waits for a worker."""

    trial: TrialId
    config: Mapping[str, Any]
    time: float
    steps: int = 0
    """From where on it has the config."""
    donor: str | None = None
    """The trial whose state it copies here, as text."""


@dataclass(frozen=True)
class TrialRunning:
    """A worker took up a trial for the first time."""

    trial: TrialId
    time: float


@dataclass(frozen=True)
class Row:
    """What a learner reported after an interval; `step` is the steps so far."""

    trial: TrialId
    step: int
    metrics: Mapping[str, float]
    time: float


Outcome: TypeAlias = Literal["finished", "stopped", "failed"]


@dataclass(frozen=True)
class TrialEnded:
    """A trial will report nothing more: budget spent, stopped by its algorithm, or failed."""

    trial: TrialId
    outcome: Outcome
    time: float
    message: str = ""


@dataclass(frozen=True)
class _RoundFailed:
    """A round of a trial failed, and the trial may go on from the state of another one."""

    trial: TrialId
    steps: int
    """Where the round began."""
    message: str
    time: float


@dataclass(frozen=True)
class TrialRetried:
    """A trial that had failed is tried again from its last checkpoint: its end is void."""

    trial: TrialId
    time: float


@dataclass(frozen=True)
class ResultTold:
    """An algorithm that waits for any of several trials got the result of this one.

    The order of these events is what a resumed search repeats.
    """

    trial: TrialId
    steps: int
    """At which the segment ended, or should have."""
    time: float


@dataclass(frozen=True)
class TrialVoided:
    """What a trial found no longer counts, though its cost does: its outcome is `stopped` now."""

    trial: TrialId
    time: float
    message: str


@dataclass(frozen=True)
class ReplicateStopped:
    """A seed of an arm runs nothing more, by a limit of the search or on request."""

    trial: TrialId
    """Of its trials this one and all later ones do not count; perhaps none was that far."""
    time: float
    message: str
    is_all: bool = False
    """Whether the whole search was stopped, and with it what had not begun."""


TrialEvent: TypeAlias = (
    TrialStarted
    | TrialRunning
    | Row
    | TrialEnded
    | _RoundFailed
    | TrialRetried
    | ResultTold
    | TrialVoided
)
Event: TypeAlias = TrialEvent | ReplicateStopped
Stops: TypeAlias = dict[tuple[str, int], ReplicateStopped]
"""Arm and seed -> how it was stopped."""


class Observer(Protocol):
    """Gets every event of a search: tracking, the live view."""

    def on_event(self, event: Event) -> None:
        """Take one event; must return at once."""


_KINDS: dict[str, type[Any]] = {
    "start": TrialStarted,
    "run": TrialRunning,
    "row": Row,
    "end": TrialEnded,
    "round_failed": _RoundFailed,
    "retry": TrialRetried,
    "void": TrialVoided,
    "stop": ReplicateStopped,
    "told": ResultTold,
}
_NAMES = {cls: kind for kind, cls in _KINDS.items()}


def _encode(event: Event) -> str:
    """Write an event as one line of a journal."""
    # Not `asdict`, which copies every config in depth: an event is written as it is.
    return json.dumps({"kind": _NAMES[type(event)], **vars(event), "trial": str(event.trial)})


def decode(line: str) -> Event | None:
    """Read one line of a journal as its event; None for the header, which names the version."""
    values = json.loads(line)
    kind = values.pop("kind")
    if kind == "version" and values["version"] != VERSION:
        raise DataError(
            f"journal format {values['version']}: another version of tuneparts wrote it, and this "
            f"one reads format {VERSION}. Read it with that version."
        )
    if kind == "version":
        return None
    event: Event = _KINDS[kind](**{**values, "trial": TrialId.parse(values["trial"])})
    return event


def read(path: Path) -> Iterator[Event]:
    """Read the events of a journal file, oldest first; half a line at its end is left out."""
    with atomic.inside(path.parent, path).open("rb") as lines:
        for number, raw in enumerate(lines, start=1):
            if not raw.endswith(b"\n"):
                return
            try:
                event = decode(raw.decode())
                if event is not None:
                    yield event
            except DataError as error:
                raise DataError(f"{path}: {error}") from None
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise DataError(
                    f"{path}: line {number} is not an event ({error}). Restore the file, or start "
                    "the search anew."
                ) from None
