"""Optimisers and learning-rate schedules, as configs."""

import math
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.optim.optimizer import ParamsT

from tuneparts.core.config import Config
from tuneparts.models.layers import norm_names, scalar_names


class OptimiserConfig(Config):
    """SGD or Adam, with a schedule over the budget."""

    kind: Literal["sgd", "adam"] = "adam"
    """Which optimiser steps the weights."""
    lr: float = Field(default=1e-3, gt=0)
    """Learning rate at its highest."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """SGD only."""
    nesterov: bool = False
    """SGD only."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Coupled L2: added to the gradient."""
    schedule: Literal["constant", "cosine", "steps"] = "constant"
    """How the learning rate falls over the budget."""
    final_lr: float = Field(default=0.0, ge=0)
    """Where the cosine ends."""
    annealed_over: float = Field(default=1.0, gt=0, le=1)
    """Fraction of the budget at which the cosine has ended; from there on the rate stays."""
    milestones: tuple[float, ...] = ()
    """Fractions of the budget at which the schedule `steps` multiplies the rate."""
    step_factor: float = Field(default=0.2, gt=0)
    """By what it multiplies."""
    warmup: float = Field(default=0.0, ge=0, lt=1)
    """Fraction of the budget over which the rate rises linearly from zero."""
    scalar_lr_factor: float = Field(default=0.1, gt=0)
    """Rate of FixUp's scalar biases and scales, relative to the others (Zhang et al. 2019)."""

    @model_validator(mode="after")
    def _check_warmup(self) -> Self:
        if self.warmup >= self.annealed_over:
            raise ValueError(
                "the rate rises before it falls, but `warmup` is "
                f"{self.warmup:g} and `annealed_over` {self.annealed_over:g}. Raise the second."
            )
        return self

    def lr_at(self, progress: float) -> float:
        """The learning rate after this fraction of the budget."""
        if progress < self.warmup:
            return self.lr * progress / self.warmup
        if self.schedule == "constant":
            return self.lr
        if self.schedule == "steps":
            return self.lr * self.step_factor ** sum(progress >= at for at in self.milestones)
        rest = min(1.0, (progress - self.warmup) / (self.annealed_over - self.warmup))
        return self.final_lr + (self.lr - self.final_lr) * (1 + math.cos(math.pi * rest)) / 2

    def build(self, net: nn.Module, *, decays_norms: bool = True) -> torch.optim.Optimizer:
        """A torch optimiser over the net; call `set_lr` before each step.

        Args:
            net: whose parameters it steps.
            decays_norms: whether weight decay acts on the parameters of norms too.
        """
        scalars = set(scalar_names(net))
        norms = set() if decays_norms else set(norm_names(net))
        own = {name: p for name, p in net.named_parameters() if name in scalars | norms}
        others = [p for name, p in net.named_parameters() if name not in own]
        groups: list[dict[str, Any]] = [
            {"params": others, "lr_factor": 1.0},
            {
                "params": [p for name, p in own.items() if name in scalars],
                "lr_factor": self.scalar_lr_factor,
            },
            {
                "params": [p for name, p in own.items() if name in norms],
                "lr_factor": 1.0,
                "weight_decay": 0.0,
            },
        ]
        groups = [group for group in groups if group["params"]]
        if self.kind == "adam":
            return adam(groups, lr=self.lr, weight_decay=self.weight_decay)
        # Not fused: that fails where a parameter has its first gradient later than others.
        return torch.optim.SGD(
            groups,
            lr=self.lr,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
        )


def adam(parameters: ParamsT, *, lr: float, weight_decay: float = 0.0) -> torch.optim.Adam:
    """Adam by torch's kernel that reads and writes each weight once, in one call for all tensors.

    For a small net the usual one spends a twentieth of a training step on calls.
    """
    return torch.optim.Adam(parameters, lr=lr, weight_decay=weight_decay, fused=True)


def set_lr(optimiser: torch.optim.Optimizer, lr: float) -> None:
    """Set the rate of every group, scaled by the group's factor."""
    for group in optimiser.param_groups:
        group["lr"] = lr * group["lr_factor"]


def step_rates(optimiser: torch.optim.Optimizer) -> dict[Tensor, float]:
    """By how much a step of SGD moves each weight per unit of its gradient, momentum aside."""
    return {
        weight: group["lr"] * (1 + group["momentum"] if group["nesterov"] else 1)
        for group in optimiser.param_groups
        for weight in group["params"]
    }
