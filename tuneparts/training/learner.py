"""The one contract of every method: a frozen config builds a `Learner` from a `Context`."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tuneparts.core import seeding
from tuneparts.data.task import Task

if TYPE_CHECKING:
    import torch
    from torch import nn

Columns: TypeAlias = Mapping[str, Sequence[float | str]]
"""A table: column name to values, all of one length."""


class Learner(Protocol):
    """One run of one method, advanced one reporting interval at a time."""

    @property
    def finished(self) -> bool:
        """Whether the whole budget is spent; `advance` must not be called any more."""

    @property
    def steps(self) -> int:
        """Forward-backwards over one batch so far."""

    def advance(self) -> Mapping[str, float]:
        """Train for one interval and report schema metrics; `test/*` only when finished."""

    def state_dict(self) -> dict[str, Any]:
        """All that training changes: weights, optimisers, hyperparameters, generators, stage.

        Tensors, numbers, strings, and lists or dicts of them, so that a checkpoint loads without
        unpickling code. What the config alone determines (fixed hyperparameters, the learning rate)
        stays out: population-based training loads one state under another config.
        """

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue bit for bit from what `state_dict` returned."""

    def final_module(self) -> "nn.Module":
        """The trained model as one ordinary module in evaluation mode.

        It maps inputs as data sets hold them (pixels from 0 to 255, or vectors) to logits (B, K),
        the same that the learner is scored by. Further training does not change it. A learner that
        has no model raises a `ConfigError`.
        """

    def artifacts(self) -> Mapping[str, Columns]:
        """Small tables by name, asked for once it has finished; a megabyte at most in all."""


class TaskRunner(Protocol):
    """Runs parts of a learner's work in other processes, on resources of the learner's trial."""

    def share(self, value: Any) -> Any:
        """A handle that `run` takes in the value's place; what is behind it is sent only once."""

    def run(
        self,
        function: Callable[..., Any],
        shared: Sequence[Any],
        jobs: Sequence[Any],
        *,
        cpus: float,
        gpus: float,
        at_once: int,
        timeout: float | None,
    ) -> list[Any]:
        """What `function(*shared, job)`, importable by name, returns for each job, in order.

        `shared` are handles from `share`. A call has these resources and seconds, and `at_once` of
        them run side by side. In the place of one that raised, died or was late is an exception.
        """


class _Device:
    """Chosen when it is first asked for, so that a context can be made without torch."""

    def __get__(self, context: "Context | None", _: type) -> Any:
        if context is None:
            return None  # the default of the field
        if context.__dict__.get("device") is None:
            context.__dict__["device"] = available_device(context.gpus)
        return context.__dict__["device"]

    def __set__(self, context: "Context", device: Any) -> None:
        context.__dict__["device"] = device


@dataclass(frozen=True)
class Context:
    """What a config needs to build a learner, besides itself."""

    task: Task
    seed: int
    device: "torch.device" = _Device()  # type: ignore[assignment]
    """Where it trains; when not given the GPU if there are `gpus`, else the CPU."""
    gpus: float = 0.0
    """How much of a GPU the learner was given."""
    score_test_always: bool = False
    """Score test data at each interval, for curves; selection never reads it."""
    tasks: TaskRunner | None = None
    """Where parts of the work can run next to the learner; None where there is no such place."""
    stream: tuple[str | int, ...] = ()
    """What names the trial among others of its seed: search, arm and index."""

    def seeded_globals(self, steps: int | None = None) -> AbstractContextManager[None]:
        """Seed the global generators for one interval of the trial, and restore them after it."""
        part = "build" if steps is None else steps
        return seeding.seeded_globals(self.seed, "globals", *self.stream, part)


def available_device(gpus: float = 1.0) -> "torch.device":
    """The GPU if a share of one was given, else the CPU: workers see also GPUs of others."""
    import torch

    return torch.device("cuda" if gpus > 0 and torch.cuda.is_available() else "cpu")


def to_csv(columns: Columns) -> str:
    """Write a table as CSV with a header; numbers have six digits, more than a figure shows."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow(f"{value:.6g}" if isinstance(value, float) else value for value in row)
    return text.getvalue()
