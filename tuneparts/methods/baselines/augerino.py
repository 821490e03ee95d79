"""Augerino: weights and augmentation widths by one joint step (Benton et al. 2020).

The training loss alone never asks for augmentation, so a regulariser rewards wide ranges:
loss = cross-entropy - reg * ||widths||_2. It is unbounded below; the `safe` variant switches the
reward off as long as any width is 10 or more (Mlodozeniec et al. 2023, appendix E).
"""

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from tuneparts.core.errors import ConfigError
from tuneparts.data.batches import Batches
from tuneparts.hypers import HyperGradient, HypersConfig, LilaConfig
from tuneparts.hypers.affine import Benton, Lila
from tuneparts.training.config import SupervisedConfig
from tuneparts.training.learner import Context, Learner
from tuneparts.training.loop import Step
from tuneparts.training.step import adam, gradient_step, loss_on, set_lr
from tuneparts.training.supervised import SupervisedLearner

SAFE_WIDTH = 10.0


class AugerinoConfig(SupervisedConfig):
    """Weights and affine widths learnt together, on all data, from the training loss."""

    method: Literal["augerino"] = "augerino"
    takes_runtime = "compiled"
    train_on: Literal["train", "all"] = "all"
    """No validation split is needed to learn hypers; `train` keeps it for selection."""
    hypers: HypersConfig = HypersConfig(affine=LilaConfig())
    """Must have learnable affine widths: `lila` or `benton`."""
    hyper_lr: float = Field(default=0.05, gt=0)
    """Adam's constant rate for the hypers."""
    reg: float = Field(default=0.01, ge=0)
    """Reward per unit of the widths' norm."""
    safe: bool = True
    """No reward as long as any width is 10 or more; without it widths can run away."""

    @model_validator(mode="after")
    def _check_has_widths(self) -> Self:
        affine = self.hypers.affine
        if affine is None or affine.kind == "schwoebel" or "affine" in self.hypers.frozen:
            raise ValueError(
                "Augerino learns affine widths, but `hypers` has "
                + ("no affine part" if affine is None else f"a frozen or `{affine.kind}` one")
                + ". Set `hypers.affine.kind` to `lila` or `benton` and do not freeze it."
            )
        return self

    @property
    def hyper_gradient(self) -> HyperGradient:
        return "fixed weights"

    def build(self, context: Context) -> Learner:
        return AugerinoLearner(self, context)


def reward(widths: Tensor, *, reg: float, safe: bool) -> Tensor:
    """What is taken off the loss: reg * ||widths||_2, or nothing beyond the safe width.

    Args:
        widths: non-negative (K,).
        reg: per unit of the norm.
        safe: whether one width of 10 or more makes it zero, with its gradient.
    """
    found: Tensor = reg * torch.linalg.vector_norm(widths)
    return found * (widths < SAFE_WIDTH).all() if safe else found


class AugerinoLearner(
    SupervisedLearner, parts=("net", "optimiser", "_hyper_optimiser", "_batches", "_augmentation")
):
    """One backward pass moves weights and hypers alike."""

    config: AugerinoConfig

    def __init__(self, config: AugerinoConfig, context: Context) -> None:
        super().__init__(config, context, learns_hypers=True)
        self.optimiser = config.optimiser.build(self.net)
        self._hyper_optimiser = adam(self.hypers.learnable(), lr=config.hyper_lr)
        self._batches = Batches(
            len(self.train_data), config.batch_size, seed=context.seed, replacement=False
        )
        self._augmentation = self.generator("augment")

    def widths(self) -> Tensor:
        """The learnable ranges (6,), as they act."""
        affine = self.hypers.affine
        if isinstance(affine, Lila):
            return affine.ranges()
        if isinstance(affine, Benton):
            return affine.widths.tensor()
        raise ConfigError(f"Augerino needs `lila` or `benton` widths, but got {affine}.")

    def step(self) -> Step:
        set_lr(self.optimiser, self.config.optimiser.lr_at(self.progress))
        batch = self.train_data.take(self._batches.next(), of=self._batches)
        loss = loss_on(
            batch,
            net=self.net,
            hypers=self.hypers,
            target=self.target,
            generator=self._augmentation,
        )
        rewarded = reward(self.widths(), reg=self.config.reg, safe=self.config.safe)
        gradient_step(loss - rewarded, self.optimiser, self._hyper_optimiser)
        # Without the reward, so that losses compare between methods.
        return Step(passes=1, losses={"train/loss": loss.detach()})
