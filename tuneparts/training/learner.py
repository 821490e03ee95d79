"""The one contract of every method: a frozen config that builds a `Learner`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from pydantic import Field

from tuneparts.config import Config
from tuneparts.data.task import Task


class Learner(Protocol):
    """One run of one method, advanced one reporting interval at a time."""

    @property
    def finished(self) -> bool:
        """Whether the whole budget is spent; `advance` must not be called any more."""
        ...

    @property
    def passes(self) -> int:
        """Forward-backwards over one batch so far."""
        ...

    def advance(self) -> Mapping[str, float]:
        """Train for one interval and report schema metrics; `test/*` only when finished."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that training changes: weights, optimisers, hypers, generators, stage.

        Tensors, numbers, strings, and lists or dicts of them, so that a checkpoint loads
        without unpickling code. What the config alone determines (fixed hypers, the learning
        rate) stays out: population-based training loads one state under another config.
        """
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue bit for bit from what `state_dict` returned."""
        ...


@dataclass(frozen=True)
class Context:
    """What a config needs to build a learner, besides itself."""

    task: Task
    seed: int
    device: torch.device
    score_test_always: bool = False
    """Score test data at each interval, for curves; selection never reads it."""


def available_device() -> torch.device:
    """Where a learner of this process runs: the GPU that it was given, or the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class MethodConfig(Config):
    """What every method's config has: a budget in passes and a reporting interval."""

    passes: int = Field(default=400, gt=0)
    """Budget of forward-backwards over one batch."""
    interval: int = Field(default=100, gt=0)
    """Passes between two reports."""

    def build(self, context: Context) -> Learner:
        """A learner at its start."""
        raise NotImplementedError
