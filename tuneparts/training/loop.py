"""The one training loop: a method supplies a step, the loop counts, checks and reports.

A trained learner is one ordinary module, which predicts what the learner was scored by, with the
draws that the test scores started from, so that equal inputs have equal predictions.

Shapes: B examples, K outputs, M members.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError, DivergedError
from tuneparts.data.batches import Batches
from tuneparts.data.device_examples import DeviceExamples, kept_on_device
from tuneparts.data.target import Reduction, Target
from tuneparts.data.task import Examples
from tuneparts.hypers.hypers import HyperModule
from tuneparts.nets.survey import draws_globally, lay_out
from tuneparts.training.config import EnsembleMethod, Method, Optimiser, Runtime, SupervisedMethod
from tuneparts.training.forward import Forward
from tuneparts.training.learner import Columns, Context
from tuneparts.training.state import Stateful
from tuneparts.training.step import Batch, gradient_step, loss_on, set_lr

EVAL_BATCH = 500
"""Examples at a time, unless they are averaged over several samples each."""


@dataclass(frozen=True)
class Step:
    """What one update cost, in steps, and the losses that it saw: detached scalars there."""

    cost: int
    losses: Mapping[str, Tensor]


class FinalModule(nn.Module):
    """Maps pixels from 0 to 255, real numbers, or whole ones (no `mean`) to outputs (B, K)."""

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
        if self.mean.numel():
            shape = (1, -1, *[1] * (x.ndim - 2))
            x = (x.to(self.mean.dtype) - self.mean.view(shape)) / self.std.view(shape)
        outputs_BK: Tensor = self.body(x)
        return outputs_BK


class UnderHypers(nn.Module):
    """Predicts with a net under its hyperparameters, averaged over draws of a fixed stream."""

    def __init__(self, net: nn.Module, hypers: HyperModule, seed: int) -> None:
        super().__init__()
        self.net = net
        self.hypers = hypers
        self.seed = seed

    def forward(self, x: Tensor) -> Tensor:
        generator = seeding.torch_generator(self.seed, "evaluate test", device=x.device)
        return self.hypers.predict(self.net, x, generator=generator, training=False)


class _MeanOfMembers(nn.Module):
    """Predicts what the target makes of several members: the mean of probabilities or values."""

    def __init__(self, model: nn.Module, target: Target) -> None:
        super().__init__()
        self.model = model
        self.target = target

    def forward(self, x: Tensor) -> Tensor:
        return self.target.combined(self.model(x))


class LoopLearner(Stateful, ABC, values=("_steps", "_updates")):
    """A method implements `step` and `evaluate`, and names what changes, see `Stateful`."""

    def __init__(self, config: Method, context: Context) -> None:
        config.check(context.task)
        if context.task.corrupted is not None and type(self).predictor is LoopLearner.predictor:
            raise ConfigError(
                f"{type(self).__name__} keeps no net that corrupted images could be scored by. "
                "Leave the data's `corrupted` out."
            )
        self.config = config
        self.context = context
        self.forward = Forward(config.runtime or Runtime(), context.device)
        self._steps = 0
        self._updates = 0

    @abstractmethod
    def step(self) -> Step:
        """One update; may spend fewer steps than usual when the budget ends."""

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """What is reported besides the losses of the interval."""

    @property
    def state_device(self) -> torch.device:
        return self.context.device

    @property
    def target(self) -> Target:
        return self.context.task.target

    def laid_out(self, net: nn.Module, in_shape: tuple[int, ...] | None = None) -> nn.Module:
        """The same net, in the memory layout that is quick for it on this run's device."""
        layout, context = self.forward.runtime.channels_last, self.context
        return lay_out(net, in_shape or context.task.in_shape, context.device, channels_last=layout)

    def predictor(self) -> nn.Module:
        """What scores are of, as an ordinary module from normalised inputs to outputs (B, K)."""
        raise ConfigError(
            f"{type(self).__name__} trains neither one net nor members: keep that of another arm."
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
        return self._steps >= self.config.steps

    @property
    def steps(self) -> int:
        return self._steps

    @property
    def progress(self) -> float:
        """Fraction of the budget that is spent: what schedules are a function of."""
        return self._steps / self.config.steps

    def interval_is_over(self, start: int) -> bool:
        """Whether it is time to report, in an interval that began at step `start`."""
        return self._steps >= start + self.config.interval

    def advance(self) -> dict[str, float]:
        start, seen, forward = self._steps, dict[str, list[Tensor]](), self.forward
        with forward.runtime.numerics(self.context.device, is_training=False):
            while not (self.finished or self.interval_is_over(start)):
                with forward.training():
                    step = self.step()
                self.count(step)
                for name, loss in step.losses.items():
                    seen.setdefault(name, []).append(loss)
            has_run, forward.has_run = forward.has_run, False
            is_plain = forward.runtime == Runtime(deterministic=forward.runtime.deterministic)
            if "train/loss" in seen and not (has_run or is_plain):
                raise ConfigError(
                    f"{forward.runtime!r} had no effect: a method takes part by calling nets by "
                    "`loss_on` or `tuneparts.training.forward.run`, but this one never has."
                )
            return self.report(seen, start)

    @property
    def scored_at_once(self) -> int:
        return EVAL_BATCH

    @torch.no_grad()
    def corrupted_scores(self) -> dict[str, float]:
        """Means over the data's corrupted test images, of all kinds and severities alike."""
        corrupted, device = self.context.task.corrupted, self.context.device
        if corrupted is None or not self.finished:
            return {}
        module, rows = self.final_module(), []
        labels_N = torch.from_numpy(corrupted.labels).to(device)
        for kind, severity in corrupted.conditions:
            images = torch.from_numpy(corrupted.images(kind, severity))
            parts = torch.split(images, self.scored_at_once)
            outputs_NK = torch.cat([module(part.to(device)) for part in parts])
            rows.append(self.target.scores(outputs_NK, labels_N))
        return {f"corrupted/{name}": sum(row[name] for row in rows) / len(rows) for name in rows[0]}

    def count(self, step: Step) -> None:
        """Count what a step cost; one that moved hyperparameters alone has no training loss."""
        self._steps += step.cost
        self._updates += "train/loss" in step.losses

    def report(self, seen: Mapping[str, list[Tensor]], start: int) -> dict[str, float]:
        """The mean losses of an interval, the costs so far, and the scores."""
        metrics = {}
        for name, losses in seen.items():
            # One device synchronisation for all steps.
            values: list[float] = torch.stack(losses).double().tolist()
            metrics[name] = sum(values) / len(values)
            for number, value in enumerate(values):
                if not math.isfinite(value):
                    raise DivergedError(
                        f"`{name}` = {value}, not finite, {number} updates after step {start} "
                        f"(seed {self.context.seed}). Lower the learning rate, or look at the "
                        f"config: {self.config.model_dump_json()}"
                    )
        metrics["cost/steps"] = float(self._steps)
        metrics["cost/updates"] = float(self._updates)
        return {**metrics, **self.evaluate(), **self.corrupted_scores()}


@torch.no_grad()
def outputs_of(
    predict: Callable[[Tensor], Tensor], examples: DeviceExamples, *, batch_size: int = EVAL_BATCH
) -> tuple[Tensor, Tensor]:
    """Outputs (N, K), or (M, N, K) of members, and labels (N, ...) of all examples, in order."""
    parts = [(predict(x), y) for x, y in examples.iterate(batch_size)]
    return torch.cat([outputs for outputs, _ in parts], -2), torch.cat([y for _, y in parts])


class _DataLearner(LoopLearner):
    """A learner with the parts of its data on the device."""

    config: SupervisedMethod | EnsembleMethod

    def __init__(self, config: SupervisedMethod | EnsembleMethod, context: Context) -> None:
        super().__init__(config, context)
        task, is_all = context.task, config.train_on == "all"
        self.train_data = self._on_device(task.train.joined(task.val) if is_all else task.train)
        self._val = None if is_all else self._on_device(task.val)
        self._test = self._on_device(task.test)

    def generator(self, *stream: str) -> torch.Generator:
        """A named stream of this run, on the device."""
        return seeding.torch_generator(self.context.seed, *stream, device=self.context.device)

    def new_batches(
        self, *stream: str | int, size: int | None = None, replacement: bool = False
    ) -> Batches:
        """Batches of training data by a named stream of this run; of the config's size if None."""
        return Batches(
            len(self.train_data),
            size or self.config.batch_size,
            seed=self.context.seed,
            stream=stream or ("batches",),
            replacement=replacement,
        )

    def scored(self) -> dict[str, DeviceExamples]:
        """The parts of the data that are scored at the end of the present interval, by name."""
        has_test = self.finished or self.context.score_test_always
        found = {"val": self._val, "test": self._test if has_test else None}
        return {name: part for name, part in found.items() if part is not None and len(part)}

    def _on_device(self, examples: Examples) -> DeviceExamples:
        task = self.context.task
        return kept_on_device(examples, mean=task.mean, std=task.std, device=self.context.device)


class SupervisedLearner(_DataLearner, parts=("hypers",)):
    """Data on the device, a net with hyperparameters, and its scores."""

    config: SupervisedMethod

    def __init__(
        self, config: SupervisedMethod, context: Context, *, learns_hypers: bool = False
    ) -> None:
        super().__init__(config, context)
        task = context.task
        if learns_hypers and config.hyper_gradient != "through a step":
            config.hypers.check_likelihood()
        with seeding.isolated(context.seed, "init"):
            net = self.laid_out(config.net.build(task.in_shape, task.num_outputs))
        self.hypers: HyperModule = config.hypers.build(
            learnable=learns_hypers, net=net, in_shape=task.in_shape, num_outputs=task.num_outputs
        ).to(context.device)
        self.net: nn.Module = net.to(context.device)
        if len(self.train_data):
            x, _ = self.train_data.take(torch.arange(min(2, len(self.train_data))))
            self.hypers.draws_globally = draws_globally(self.net, x)

    def predict(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Outputs (B, K) as used for scores; methods with other forward views override it."""
        return self.hypers.predict(self.net, x, generator=generator, training=False)

    def batch_loss(
        self,
        batch: Batch,
        generator: torch.Generator,
        *,
        net: Callable[[Tensor], Tensor] | None = None,
        reduction: Reduction = "mean",
        held_out: bool = False,
    ) -> Tensor:
        """The training loss of the net, or of another, under the hyperparameters: see `loss_on`."""
        return loss_on(
            batch,
            net=self.net if net is None else net,
            hypers=self.hypers,
            target=self.target,
            generator=generator,
            reduction=reduction,
            held_out=held_out,
        )

    def trained_net(self) -> nn.Module:
        """The net that `predict` predicts with, as an ordinary module; override both or none."""
        return self.net

    def predictor(self) -> nn.Module:
        return UnderHypers(self.trained_net(), self.hypers, self.context.seed)

    def evaluate(self) -> dict[str, float]:
        metrics = self.hypers.values()
        for split, examples in self.scored().items():
            metrics |= self.score(examples, split)
        return metrics

    def score(self, examples: DeviceExamples, split: str) -> dict[str, float]:
        """Scores of a split, always under the same augmentation draws."""
        generator = self.generator(f"evaluate {split}")
        was_training = self.net.training
        self.net.eval()
        size = self.scored_at_once
        found = outputs_of(lambda x: self.predict(x, generator), examples, batch_size=size)
        self.net.train(was_training)
        return {f"{split}/{name}": value for name, value in self.target.scores(*found).items()}

    @property
    def scored_at_once(self) -> int:
        return max(1, EVAL_BATCH // self.hypers.num_samples(training=False))


class Release(Stateful, parts=("optimiser", "batches", "augmentation")):
    """The last stage of a run: steps of all weights on all data (Mlodozeniec et al. 2023, I.4)."""

    def __init__(self, learner: SupervisedLearner, optimiser: Optimiser | None) -> None:
        self._net, self._hypers, self._loss = learner.net, learner.hypers, learner.batch_loss
        self.examples = learner.train_data
        run = learner.config.optimiser
        self.config = optimiser or run.replaced({"lr": run.lr / 2, "schedule": "cosine"})
        self.optimiser = self.config.build(learner.net)
        self.batches = learner.new_batches("release", "batches")
        self.augmentation = learner.generator("augment release")

    def step(self, progress: float) -> Step:
        set_lr(self.optimiser, self.config.lr_at(progress))
        batch = self.examples.take(self.batches.next(), of=self.batches)
        with self._hypers.detached():
            loss = self._loss(batch, self.augmentation)
        gradient_step(self._hypers.penalised(loss, self._net.parameters()), self.optimiser)
        return Step(cost=1, losses={"train/loss": loss.detach()})
