"""The one training loop: a method supplies a step, the loop counts, checks and reports.

A trained learner is one ordinary module, which is kept and served. It takes inputs as data sets
hold them, normalises them as training did, and predicts what the learner was scored by: the same
net, hypers and averaging. Its draws of augmentation start in each call where those of the test
scores started, so equal inputs have equal predictions.

Shapes: B examples, K outputs, M members.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError, DivergedError
from tuneparts.data.target import Target
from tuneparts.hypers.hypers import Hypers
from tuneparts.models.layout import lay_out
from tuneparts.training.config import MethodConfig, Runtime
from tuneparts.training.learner import Columns, Context
from tuneparts.training.passes import Passes
from tuneparts.training.scores import EVAL_BATCH, published_scores
from tuneparts.training.state import Stateful


@dataclass(frozen=True)
class Step:
    """What one step cost and the losses that it saw, as detached scalars on the device."""

    passes: int
    losses: Mapping[str, Tensor]

    @property
    def weight_steps(self) -> int:
        """1 if it moved weights, and so had a training loss; 0 if it moved hypers alone."""
        return int("train/loss" in self.losses)


class FinalModule(nn.Module):
    """Maps pixels (B, C, H, W) from 0 to 255, real numbers, or whole ones, to outputs (B, K).

    `mean` and `std` are of each channel or feature, with pixels from 0 to 1; empty for whole
    numbers, which are not normalised.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, body: nn.Module, *, mean: Sequence[float], std: Sequence[float], is_image: bool
    ) -> None:
        super().__init__()
        self.body = body
        scale = 255.0 if is_image else 1.0
        self.register_buffer("mean", scale * torch.tensor(mean, dtype=torch.float32))
        self.register_buffer("std", scale * torch.tensor(std, dtype=torch.float32))

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Outputs (B, K)."""
        if self.mean.numel():
            shape = (1, -1, *[1] * (x.ndim - 2))
            x = (x.to(self.mean.dtype) - self.mean.view(shape)) / self.std.view(shape)
        outputs_BK: Tensor = self.body(x)
        return outputs_BK


class UnderHypers(nn.Module):
    """Predicts with a net under its hypers, averaged over draws of a fixed stream."""

    def __init__(self, net: nn.Module, hypers: Hypers, seed: int) -> None:
        super().__init__()
        self.net = net
        self.hypers = hypers
        self.seed = seed

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, K)."""
        generator = seeding.torch_generator(self.seed, "evaluate test", device=x.device)
        return self.hypers.predict(self.net, x, generator=generator, training=False)


class MeanOfMembers(nn.Module):
    """Predicts what the target makes of several members: the mean of probabilities or values."""

    def __init__(self, model: nn.Module, target: Target) -> None:
        super().__init__()
        self.model = model
        self.target = target

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, K)."""
        return self.target.combined(self.model(x))


class LoopLearner(Stateful, ABC, values=("_passes", "_weight_steps")):
    """A `Learner` whose interval is a number of passes.

    A method implements `step` and `evaluate`, and names what `step` changes in the `parts` and
    `values` of its class, see `Stateful`.
    """

    def __init__(self, config: MethodConfig, context: Context) -> None:
        config.check(context.task)
        if context.task.corrupted is not None and type(self).predictor is LoopLearner.predictor:
            raise ConfigError(
                "corrupted images are scored by methods that train one net or several members, but "
                f"{type(self).__name__} keeps none. Leave the data's `corrupted` out."
            )
        self.config = config
        self.context = context
        self.training_passes = Passes(config.runtime or Runtime(), context.device)
        self._passes = 0
        self._weight_steps = 0

    @abstractmethod
    def step(self) -> Step:
        """One update; may spend fewer passes than usual when the budget ends."""

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """What is reported besides the losses of the interval."""

    @property
    def state_device(self) -> torch.device:
        return self.context.device

    @property
    def target(self) -> Target:
        """What the loss and the scores are of."""
        return self.context.task.target

    def laid_out(self, net: nn.Module, in_shape: tuple[int, ...] | None = None) -> nn.Module:
        """The same net, in the memory layout that is quick for it on this run's device."""
        layout = self.training_passes.runtime.channels_last
        shape = in_shape or self.context.task.in_shape
        return lay_out(net, shape, self.context.device, channels_last=layout)

    def predictor(self) -> nn.Module:
        """What scores are of, as an ordinary module from normalised inputs to outputs (B, K)."""
        raise ConfigError(
            "a model is kept of methods that train one net or several members, but "
            f"{type(self).__name__} has none. Keep the model of another arm."
        )

    def final_module(self) -> FinalModule:
        body = copy.deepcopy(self.predictor())  # so that further training does not reach it
        task = self.context.task
        mean, std = ((), ()) if task.has_tokens else (task.mean, task.std)
        module = FinalModule(body, mean=mean, std=std, is_image=task.has_pixels)
        return module.to(self.context.device).eval()

    def artifacts(self) -> Mapping[str, Columns]:
        return {}

    @property
    def finished(self) -> bool:
        return self._passes >= self.config.passes

    @property
    def passes(self) -> int:
        return self._passes

    @property
    def progress(self) -> float:
        """Fraction of the budget that is spent: what schedules are a function of."""
        return self._passes / self.config.passes

    def interval_is_over(self, start: int) -> bool:
        """Whether it is time to report, in an interval that began at pass `start`."""
        return self._passes >= start + self.config.interval

    def advance(self) -> dict[str, float]:
        with self.training_passes.runtime.numerics(self.context.device, is_training=False):
            return self._interval()

    def _interval(self) -> dict[str, float]:
        start = self._passes
        seen: dict[str, list[Tensor]] = {}
        has_run = False
        while not (self.finished or self.interval_is_over(start)):
            with self.training_passes.training() as block:
                step = self.step()
            has_run |= block.has_run
            self.count(step)
            for name, loss in step.losses.items():
                seen.setdefault(name, []).append(loss)
        if "train/loss" in seen and not has_run:
            self.training_passes.refuse_unused()
        return self.report(seen, start)

    @property
    def scored_at_once(self) -> int:
        """Examples of a batch in evaluation."""
        return EVAL_BATCH

    def corrupted_scores(self) -> dict[str, float]:
        """Scores on the data's corrupted test images, where it has some, at the very end."""
        corrupted = self.context.task.corrupted
        if corrupted is None or not self.finished:
            return {}
        return published_scores(
            self.final_module(),
            corrupted,
            target=self.target,
            device=self.context.device,
            batch_size=self.scored_at_once,
        )

    def count(self, step: Step) -> None:
        """Count what a step cost."""
        self._passes += step.passes
        self._weight_steps += step.weight_steps

    def report(self, seen: Mapping[str, list[Tensor]], start: int) -> dict[str, float]:
        """The mean losses of an interval, the costs so far, and the scores.

        Raises:
            DivergedError: A loss is not finite.
        """
        metrics = {name: self._mean(name, losses, start) for name, losses in seen.items()}
        costs = {"cost/passes": float(self._passes)}
        if self._weight_steps >= 0:
            costs["cost/weight_steps"] = float(self._weight_steps)
        return {**metrics, **costs, **self.evaluate(), **self.corrupted_scores()}

    def restore(self, state: Mapping[str, Any]) -> None:
        # A state from before weight steps were counted has no count, and gets none.
        super().restore({"weight_steps": -(10**12), **state})

    def _mean(self, name: str, losses: list[Tensor], start: int) -> float:
        """Mean over the interval; one device synchronisation for all its steps."""
        values: list[float] = torch.stack(losses).double().tolist()
        for number, value in enumerate(values):
            if not math.isfinite(value):
                raise DivergedError(
                    f"`{name}` must stay finite, but is {value} at step {number} after pass "
                    f"{start} (seed {self.context.seed}). Lower the learning rate, or look at the "
                    f"config: {self.config.model_dump_json()}"
                )
        return sum(values) / len(values)
