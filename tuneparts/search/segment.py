"""A stretch of a trial that runs without a decision in between, and where its state lies."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuneparts.journal import TrialId


@dataclass(frozen=True)
class Segment:
    """Train one trial until it has spent so many passes."""

    trial: TrialId
    config: Mapping[str, Any]
    """The method's config as plain values."""
    until: int
    """Passes at which the segment ends."""
    start: int = 0
    """Passes at which it begins."""
    round: int = 0
    """How many segments of the trial came before."""
    donor: TrialId | None = None
    """Whose state of the round before to start from, when not its own."""

    def to_json(self) -> str:
        """One line of text, for the way to the worker."""
        return json.dumps(
            {
                "trial": str(self.trial),
                "config": self.config,
                "until": self.until,
                "start": self.start,
                "round": self.round,
                "donor": None if self.donor is None else str(self.donor),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "Segment":
        """The inverse of `to_json`."""
        values = json.loads(text)
        return cls(
            trial=TrialId.parse(values["trial"]),
            config=values["config"],
            until=values["until"],
            start=values["start"],
            round=values["round"],
            donor=None if values["donor"] is None else TrialId.parse(values["donor"]),
        )


@dataclass(frozen=True)
class Result:
    """How a segment ended: its last metrics, or why it failed."""

    metrics: Mapping[str, float]
    failure: str | None = None


@dataclass(frozen=True)
class Batch:
    """What an algorithm wants next: segments to run, and trials that go no further."""

    run: tuple[Segment, ...]
    stop: tuple[TrialId, ...] = ()
