"""What can happen in a search: one class for each kind of event."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

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
    """A trial got its config and waits for a worker.

    Repeated with a new config when the population perturbs it.
    """

    trial: TrialId
    config: Mapping[str, Any]
    time: float
    passes: int = 0
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
    """What a learner reported after an interval; `step` is the passes so far."""

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
class RoundFailed:
    """A round of a trial failed, and the trial may go on from the state of another one."""

    trial: TrialId
    passes: int
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
    """An algorithm that waited for whichever of several trials ends first was told of this one.

    The order of these events is what a resumed search repeats.
    """

    trial: TrialId
    passes: int
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
    """A replicate runs nothing more, by a limit of the search or on request."""

    trial: TrialId
    """Of its trials this one and all later ones do not count; perhaps none was that far."""
    time: float
    message: str
    is_all: bool = False
    """Whether the whole search was stopped, and with it the replicates that had not begun."""


TrialEvent: TypeAlias = (
    TrialStarted
    | TrialRunning
    | Row
    | TrialEnded
    | RoundFailed
    | TrialRetried
    | ResultTold
    | TrialVoided
)
Event: TypeAlias = TrialEvent | ReplicateStopped
Stops: TypeAlias = dict[tuple[str, int], ReplicateStopped]
"""Arm and seed of a replicate -> how it was stopped."""


class Observer(Protocol):
    """Whoever wants to know: tracking, the live view."""

    def on_event(self, event: Event) -> None:
        """Take one event; must return at once."""
        ...


def tell(observers: Iterable[Observer], event: Event) -> None:
    """Pass an event on to all observers."""
    for observer in observers:
        observer.on_event(event)
