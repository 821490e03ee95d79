"""The loss of a batch and the one gradient step that every method trains by.

A step of any method reads a batch, predicts it with a net under hypers, and moves parameters down
the gradient of the loss. Methods differ in the net they predict with (the whole one, a subnetwork,
several members), in what they add to the loss, and in who moves by the gradient.

Shapes: B examples.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from tuneparts.data.target import Reduction, Target
from tuneparts.hypers import Hypers
from tuneparts.training.passes import run

Batch = tuple[Tensor, Tensor]
"""Normalised inputs (B, ...) and labels (B,)."""


def loss_on(
    batch: Batch,
    *,
    net: Callable[[Tensor], Tensor],
    hypers: Hypers,
    target: Target,
    generator: torch.Generator,
    reduction: Reduction = "mean",
    held_out: bool = False,
) -> Tensor:
    """The training loss of a net under its hypers.

    Args:
        batch: inputs and labels.
        net: from inputs to outputs; may be a subnetwork.
        hypers: differentiated with the rest, unless inside `hypers.detached()`.
        target: of the task.
        generator: source of the hypers' draws.
        reduction: mean or sum over examples, or one loss for each.
        held_out: judge by the likelihood alone, as a hyper step does.
    """
    x, y_B = batch
    outputs_BK = hypers.predict(
        lambda inputs: run(net, inputs, exactly=held_out), x, generator=generator, training=True
    )
    return hypers.loss(outputs_BK, y_B, target.loss, reduction=reduction, held_out=held_out)


def gradients(objective: Tensor, leaves: Iterable[Tensor]) -> list[Tensor | None]:
    """Differentiate by these leaves and nothing else; None for those that play no part.

    The gradients are also left in the leaves' `grad`, where optimisers look for them.
    """
    moved = list(leaves)
    for leaf in moved:
        leaf.grad = None
    torch.autograd.backward(objective, inputs=[leaf for leaf in moved if leaf.requires_grad])
    return [leaf.grad for leaf in moved]


def gradient_step(objective: Tensor, *optimisers: torch.optim.Optimizer) -> None:
    """Move everything that these optimisers hold by the gradient of an objective.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor(3.0))
        >>> gradient_step(weight.square(), torch.optim.SGD([weight], lr=0.5))
        >>> weight.item()
        0.0
    """
    groups = [group for optimiser in optimisers for group in optimiser.param_groups]
    gradients(objective, (parameter for group in groups for parameter in group["params"]))
    for optimiser in optimisers:
        optimiser.step()
