"""The one contract of every method: a frozen config that builds a `Learner`."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, Self

import torch
from pydantic import Field, model_validator
from torch import nn

from tuneparts.core import import_path, schema, seeding
from tuneparts.core.config import Config
from tuneparts.data.task import Task
from tuneparts.training import fitness
from tuneparts.training.artifacts import Columns
from tuneparts.training.runtime import Runtime


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

    def final_module(self) -> nn.Module:
        """The trained model as one ordinary module in evaluation mode.

        It maps inputs as data sets hold them (pixels from 0 to 255, or vectors) to logits (B, K),
        the same that the learner is scored by. Further training does not change it.

        Raises:
            ConfigError: There is no model to keep.
        """
        ...

    def artifacts(self) -> Mapping[str, Columns]:
        """Small tables by name, asked for once it has finished; a megabyte at most in all."""
        ...


class TaskRunner(Protocol):
    """Runs parts of a learner's work in other processes, on resources of the learner's trial."""

    def share(self, value: Any) -> Any:
        """A handle that `run` takes in the value's place; what is behind it is sent only once."""
        ...

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
        """What `function(*shared, job)` returns for each job, in order.

        Args:
            function: importable by name in another process.
            shared: handles from `share`.
            jobs: the last argument of each call.
            cpus: of each call.
            gpus: of each call.
            at_once: calls that run side by side.
            timeout: seconds for each call; None waits.

        Returns:
            A result each; an exception in the place of one that raised, died or was late.
        """
        ...


@dataclass(frozen=True)
class Context:
    """What a config needs to build a learner, besides itself."""

    task: Task
    seed: int
    device: torch.device
    score_test_always: bool = False
    """Score test data at each interval, for curves; selection never reads it."""
    tasks: TaskRunner | None = None
    """Where parts of the work can run beside the learner; None where there is no such place."""
    stream: tuple[str | int, ...] = ()
    """What names the trial among others of its seed: search, arm and index."""

    def seeded_globals(self, passes: int | None = None) -> AbstractContextManager[None]:
        """Seed the global generators for one interval of the trial, and restore them after it.

        Args:
            passes: where the interval starts; None while the learner is built.
        """
        part = "build" if passes is None else passes
        return seeding.seeded_globals(self.seed, "globals", *self.stream, part)


def available_device(gpus: float = 1.0) -> torch.device:
    """Where a learner runs: on the GPU if it was given one, or a share of it, else on the CPU.

    That a GPU can be seen is not enough. Workers that were given none see those of others.

    Args:
        gpus: how much of a GPU the learner was given.

    Example:
        >>> available_device(gpus=0)
        device(type='cpu')
    """
    return torch.device("cuda" if gpus > 0 and torch.cuda.is_available() else "cpu")


class MethodConfig(Config):
    """What every method's config has: a budget in passes and a reporting interval.

    A config that was written as JSON finds its class by the field `method`. A class outside of this
    package that has no such field gets one, its import path: see `examples/own_method.py`.
    """

    passes: int = Field(default=400, gt=0)
    """Budget of forward-backwards over one batch."""
    interval: int = Field(default=100, gt=0)
    """Passes between two reports."""
    runtime: Runtime | None = None
    """Precision and layout of the passes; None for that of the search."""
    metrics: ClassVar[tuple[schema.Metric, ...]] = ()
    """What its learner reports besides the built-in metrics."""
    figures: ClassVar[tuple[str, ...]] = ()
    """Figures of reports of its arms besides those that the search asks for."""
    takes_runtime: ClassVar[bool] = False
    """Whether its learner trains by `loss_on` or by `passes.run`, and so takes a `runtime`."""
    compiles: ClassVar[bool] = False
    """Whether it trains one net as it is, which `runtime.compile` can compile."""
    needs_data: ClassVar[bool] = True
    """Whether its learner reads the data of the search."""
    classes_only: ClassVar[str] = ""
    """Why its learner can learn classes and no other target; empty where it can."""

    @model_validator(mode="after")
    def _declare_metrics(self) -> Self:
        # Driver, workers and readers of a run all parse the config, so all know the metrics.
        schema.declare(*self.declared_metrics())
        return self

    @model_validator(mode="after")
    def _check_runtime(self) -> Self:
        if self.runtime is not None and not self.takes_runtime:
            raise ValueError(
                "a `runtime` is for methods that train nets by `tuneparts.training`, but "
                f"{type(self).__name__} is on its own; leave it out"
            )
        if self.runtime is not None and self.runtime.compile and not self.compiles:
            raise ValueError(
                "`runtime.compile` is for methods that train one net as it is, but "
                f"{type(self).__name__} changes the weights that a net computes with at each step; "
                "leave it out"
            )
        return self

    def declared_metrics(self) -> tuple[schema.Metric, ...]:
        """What a learner of this very config reports besides the built-in metrics."""
        return self.metrics

    def check_runnable(self, *, copies_state: bool) -> None:
        """Refuse in the driver what no worker could run, before anything is started.

        Args:
            copies_state: whether trials load states of others, as in population-based training.

        Raises:
            ConfigError: It cannot run, with the reason and the cure.
        """

    def check_task(self, task: Task) -> None:
        """Refuse data that its learner cannot learn from, in the driver before anything is started.

        Raises:
            ConfigError: The target or the inputs are of a wrong kind, with the reason and the cure.
        """
        if self.classes_only:
            fitness.refuse_target(self, task, self.classes_only)
        fitness.check_inputs(self, task)
        fitness.check_target(task)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = inspect.get_annotations(cls)
        is_ours = cls.__module__.partition(".")[0] == "tuneparts"
        if not is_ours and "method" not in own and cls.build is not MethodConfig.build:
            path = import_path.name_of(cls)
            cls.__annotations__ = {**own, "method": Literal[path]}
            cls.method = path  # type: ignore[attr-defined]

    def task_bundles(self) -> list[dict[str, float]]:
        """Resources that a trial reserves for tasks besides its own: name to amount, each."""
        return []

    def build(self, context: Context) -> Learner:
        """A learner at its start."""
        raise NotImplementedError

    @property
    def shared_passes(self) -> int:
        """First passes that are made once for all trials of a seed that begin alike."""
        return 0

    def measurable(self) -> Self:
        """A config of which a few passes show what a pass costs."""
        return self

    @property
    def can_be_packed(self) -> bool:
        """Whether its learners can be trained together, see `Arm.packed`."""
        return False
