"""Hypers by the marginal likelihood of a Gaussian process on the last layer's features.

Schwoebel et al. (2022) train a net, put a sparse Gaussian process on the features before its last
layer, and learn augmentation ranges by the process's bound on log p(D); net and ranges take turns.
Here weight steps train the net by its likelihood, and now and then one hyper step takes the
gradient of the bound at fixed weights. The posterior over inducing features comes from a running
mean of the data's statistics, which is a natural gradient step (Hensman et al. 2013). Predictions
are those of the net, so that arms of a comparison differ in their hypers alone.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError
from tuneparts.data.batches import Batches
from tuneparts.hypers import HyperGradient, HypersConfig, SchwoebelConfig
from tuneparts.methods.baselines.gaussian_process import (
    Averages,
    InducedFeatures,
    Posterior,
    bound,
    median_distance,
)
from tuneparts.training.config import SupervisedConfig
from tuneparts.training.learner import Context, Learner
from tuneparts.training.loop import Step
from tuneparts.training.scores import EVAL_BATCH
from tuneparts.training.step import adam, gradient_step, loss_on, set_lr
from tuneparts.training.supervised import SupervisedLearner


class LastLayerConfig(SupervisedConfig):
    """Weights by their likelihood, hypers of inputs by the evidence of the last layer."""

    method: Literal["last_layer"] = "last_layer"
    takes_runtime = "compiled"
    train_on: Literal["train", "all"] = "all"
    """No validation split is needed to learn hypers; `train` keeps it for selection."""
    hypers: HypersConfig = HypersConfig(affine=SchwoebelConfig(), samples=4)
    """Only hypers that act on inputs."""
    hyper_lr: float = Field(default=1e-3, gt=0)
    """Adam's constant rate for the hypers. A range moves by about this much a step."""
    hyper_every: int = Field(default=1, gt=0)
    """Weight steps per hyper step."""
    num_inducing: int = Field(default=100, gt=1)
    """Training examples whose features carry the posterior."""
    lengthscale: float = Field(default=1.0, gt=0)
    """Of the kernel, in units of the median distance between inducing features."""
    noise: float = Field(default=0.05, gt=0)
    """Variance of the Gaussian likelihood of one-hot labels."""
    memory: float = Field(default=0.9, ge=0, lt=1)
    """Share of the running mean of the statistics that one hyper step keeps."""
    burn_in: float = Field(default=0.1, ge=0, lt=1)
    """Fraction of the passes before the first hyper step, in which the net learns features."""

    classes_only = "its process has one output per class"

    @model_validator(mode="after")
    def _check_inputs_only(self) -> Self:
        for name, hyper in self.hypers.parts.items():
            if hyper.place() != "inputs":
                raise ValueError(
                    "the last layer's evidence depends on the inputs of the net, but the hyper "
                    f"`{name}` acts on {hyper.place()}. Leave it out, or use another method."
                )
        return self

    @property
    def hyper_gradient(self) -> HyperGradient:
        return "fixed weights"

    @property
    def hyper_passes(self) -> int:
        """What a hyper step costs.

        Forward and backward without gradients by weights are two thirds of a pass, and a forward
        over the inducing examples is a third of its share of the batch.
        """
        seen = self.batch_size * self.hypers.samples
        return math.ceil(2 / 3 + self.num_inducing / seen / 3)

    def build(self, context: Context) -> Learner:
        return LastLayerLearner(self, context)


class LastLayerLearner(
    SupervisedLearner,
    parts=(
        "net",
        "optimiser",
        "_hyper_optimiser",
        "_batches",
        "_hyper_batches",
        "_augmentation",
        "_hyper_augmentation",
    ),
    values=("_second", "_cross", "_since"),
):
    """Weight steps, and hyper steps by the bound of the process."""

    config: LastLayerConfig

    def __init__(self, config: LastLayerConfig, context: Context) -> None:
        super().__init__(config, context, learns_hypers=True)
        self._head = last_linear(self.net)
        if self.hypers.dropout is not None:
            raise ConfigError(
                "the process sees features without dropout, but the net has dropout rates. "
                "Set them to 0."
            )
        self.optimiser = config.optimiser.build(self.net)
        psi = self.hypers.learnable()
        self._hyper_optimiser = adam(psi, lr=config.hyper_lr) if psi else None
        num = len(self.train_data)
        size, seed = config.batch_size, context.seed
        self._batches = Batches(num, size, seed=seed, replacement=False)
        self._hyper_batches = Batches(
            num, size, seed=seed, stream=("hyper steps", "batch"), replacement=True
        )
        draw = seeding.torch_generator(context.seed, "inducing examples")
        self._inducing = torch.randperm(num, generator=draw)[: config.num_inducing]
        self._augmentation = self.generator("augment")
        self._hyper_augmentation = self.generator("augment hyper steps")
        self._second: Tensor | None = None
        self._cross: Tensor | None = None
        self._since = 0

    def step(self) -> Step:
        config = self.config
        is_due = self._since >= config.hyper_every and self.progress >= config.burn_in
        has_passes_left = self.passes + config.hyper_passes <= config.passes
        if is_due and has_passes_left and self._hyper_optimiser is not None:
            self._since = 0
            loss = self.hyper_step()
            return Step(passes=config.hyper_passes, losses={"train/hyper_loss": loss})
        self._since += 1
        return Step(passes=1, losses={"train/loss": self.weight_step()})

    def weight_step(self) -> Tensor:
        """Move the weights by one batch under the present hypers."""
        set_lr(self.optimiser, self.config.optimiser.lr_at(self.progress))
        batch = self.train_data.take(self._batches.next(), of=self._batches)
        with self.hypers.detached():
            loss = loss_on(
                batch,
                net=self.net,
                hypers=self.hypers,
                target=self.target,
                generator=self._augmentation,
            )
        gradient_step(loss, self.optimiser)
        return loss.detach()

    def hyper_step(self) -> Tensor:
        """Move the hypers by one batch; returns minus the bound per example."""
        assert self._hyper_optimiser is not None
        num, noise = len(self.train_data), self.config.noise
        x, y_B = self.train_data.take(self._hyper_batches.next())
        self.net.eval()
        found = self._induced().averages(self._features(x, self._hyper_augmentation))
        self.net.train()
        y_BK, scale = self._targets(y_B), num / len(x)
        self._remember(found.second.detach() * scale, found.psi_BM.detach().T @ y_BK * scale)
        assert self._second is not None
        assert self._cross is not None
        q = Posterior.best(self._second, self._cross, noise)
        loss = (q.divergence() - scale * q.expected(found, y_BK, noise)) / num
        gradient_step(loss, self._hyper_optimiser)
        return loss.detach().to(torch.get_default_dtype())

    @torch.no_grad()
    def evidence(self) -> float:
        """The bound on log p(D) of all training data, always under the same draws."""
        generator = self.generator("evaluate lml")
        was_training = self.net.training
        self.net.eval()
        induced = self._induced()
        total: Averages | None = None
        targets = []
        batch_size = max(1, EVAL_BATCH // self.hypers.num_samples(training=True))
        for x, y_B in self.train_data.iterate(batch_size):
            found = induced.averages(self._features(x, generator))
            total = found if total is None else total + found
            targets.append(self._targets(y_B))
        self.net.train(was_training)
        assert total is not None
        return float(bound(total, torch.cat(targets), self.config.noise))

    def evaluate(self) -> dict[str, float]:
        metrics = super().evaluate()
        if self.finished:
            total = self.evidence()
            metrics |= {"lml/total": total, "lml/per_example": total / len(self.train_data)}
        return metrics

    def _features(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Features (B, S, D) of augmented inputs."""
        with self._watched() as seen:
            self.hypers.predict(self.net, x, generator=generator, training=True)
        return seen[0].view(len(x), -1, seen[0].shape[-1])

    def _induced(self) -> InducedFeatures:
        """The process at the features that the inducing examples have now, as they are."""
        x, _ = self.train_data.take(self._inducing)
        with torch.no_grad(), self._watched() as seen:
            self.net(x)
        return InducedFeatures(seen[0], self.config.lengthscale * median_distance(seen[0]))

    @contextmanager
    def _watched(self) -> Iterator[list[Tensor]]:
        """Inside the block every call of the net adds its features (N, D), in double precision."""
        seen: list[Tensor] = []
        handle = self._head.register_forward_pre_hook(
            lambda _, given: seen.append(given[0].double())
        )
        try:
            yield seen
        finally:
            handle.remove()

    def _targets(self, y_B: Tensor) -> Tensor:
        """One-hot labels (B, K) around their mean without knowledge."""
        num_classes = self.context.task.num_classes
        return nn.functional.one_hot(y_B, num_classes).double() - 1 / num_classes

    def _remember(self, second_MM: Tensor, cross_MK: Tensor) -> None:
        if self._second is None or self._cross is None:
            self._second, self._cross = second_MM, cross_MK
            return
        kept = self.config.memory
        self._second = torch.lerp(second_MM, self._second, kept)
        self._cross = torch.lerp(cross_MK, self._cross, kept)


def last_linear(net: nn.Module) -> nn.Linear:
    """The last linear layer of a net, whose inputs are the features.

    Raises:
        ConfigError: There is none.
    """
    found = [module for module in net.modules() if isinstance(module, nn.Linear)]
    if not found:
        raise ConfigError(
            "the process stands on the inputs of the net's last linear layer, but the net has "
            "none. Use a net that ends in one."
        )
    return found[-1]
