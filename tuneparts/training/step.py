"""The loss of a batch and the one gradient step that every method trains by.

Shapes: B examples.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.optim.optimizer import ParamsT

from tuneparts.data.target import Reduction, Target
from tuneparts.hypers.hypers import HyperModule
from tuneparts.training.forward import run

Batch = tuple[Tensor, Tensor]
"""Normalised inputs (B, ...) and labels (B,)."""


def loss_on(
    batch: Batch,
    *,
    net: Callable[[Tensor], Tensor],
    hypers: HyperModule,
    target: Target,
    generator: torch.Generator,
    reduction: Reduction = "mean",
    held_out: bool = False,
) -> Tensor:
    """The training loss of a net under its hyperparameters; held out, by likelihood alone."""
    x, y_B = batch
    outputs_BK = hypers.predict(
        lambda inputs: run(net, inputs, exactly=held_out), x, generator=generator, training=True
    )
    return hypers.loss(outputs_BK, y_B, target.loss, reduction=reduction, held_out=held_out)


def gradients(objective: Tensor, leaves: Iterable[Tensor]) -> list[Tensor | None]:
    """Differentiate by these leaves and nothing else, also into their `grad`; None for unused."""
    moved = list(leaves)
    for leaf in moved:
        leaf.grad = None
    torch.autograd.backward(objective, inputs=[leaf for leaf in moved if leaf.requires_grad])
    return [leaf.grad for leaf in moved]


def gradient_step(objective: Tensor, *optimisers: torch.optim.Optimizer) -> None:
    """Move everything that these optimisers hold by the gradient of an objective."""
    groups = [group for optimiser in optimisers for group in optimiser.param_groups]
    gradients(objective, (parameter for group in groups for parameter in group["params"]))
    for optimiser in optimisers:
        optimiser.step()


def adam(parameters: ParamsT, *, lr: float, weight_decay: float = 0.0) -> torch.optim.Adam:
    """Adam by torch's fused kernel: others take a twentieth more of a step of a small net."""
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


@torch.no_grad()
def recalibrate(
    net: nn.Module, batches: Iterable[Tensor], forward: Callable[[Tensor], Tensor]
) -> None:
    """Replace BatchNorm's running statistics by plain averages over these inputs, in eval mode."""
    kind = nn.modules.batchnorm._BatchNorm
    norms = [m for m in net.modules() if isinstance(m, kind) and m.track_running_stats]
    if not norms:
        return
    modes = {module: module.training for module in net.modules()}
    momenta = {norm: norm.momentum for norm in norms}
    net.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a cumulative average
        norm.train()
    for x in batches:
        forward(x)
    for norm in norms:
        norm.momentum = momenta[norm]
    for module, is_training in modes.items():
        module.training = is_training
