"""Fixing in rounds: when each round ends, how many weights it fixes, and how they stay fixed.

Rounds see all weights of a net as one vector. A zero gradient is not a zero update: momentum,
weight decay and Adam's moments would move a fixed weight on. So the optimiser's step runs inside
`held`, which puts fixed entries back bit for bit. Which entries are fixed is a buffer of the net,
and so part of its `state_dict`.

Shapes: N all weights and biases of Gaussian layers, in the order of the net; R the free ones.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

import torch
from torch import Tensor, nn

from tuneparts.pwfn.gaussian import FLOOR, tensors

FRACTIONS = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99, 1.0)
"""Share of weights that is fixed after each of the ten published rounds."""


@dataclass(frozen=True)
class Rounds:
    """Passes at which pretraining, warm-up and each round end."""

    pretrain_end: int
    warmup_end: int
    ends: tuple[int, ...]
    """End of each round, where it fixes weights; the last is the whole budget."""


def cut(
    passes: int, *, pretrain: float, warmup: float, first_round: float, num_rounds: int
) -> Rounds:
    """Divide a budget of passes; rounds too short for a pass end where the round before does.

    Args:
        passes: the budget.
        pretrain: share of the budget before weights become Gaussians.
        warmup: share of the budget in which only deviations train.
        first_round: length of the first round relative to each other one.
        num_rounds: how many rounds share the rest.

    Example:
        >>> cut(100, pretrain=0.5, warmup=0.0, first_round=0.5, num_rounds=3)
        Rounds(pretrain_end=50, warmup_end=50, ends=(60, 80, 100))
    """
    pretrain_end = round(pretrain * passes)
    warmup_end = round((pretrain + warmup) * passes)
    others = [1.0] * (num_rounds - 1)
    lengths = list(accumulate([first_round if others else 1.0, *others]))
    rest = passes - warmup_end
    ends = [warmup_end + round(rest * length / lengths[-1]) for length in lengths]
    return Rounds(pretrain_end, warmup_end, tuple(ends))


def quota(num_weights: int, fraction: float) -> int:
    """Round a fraction of all weights up to a whole number of them.

    The fraction counts as it is written in decimal: the float 0.07 is above 7 / 100, and 0.07 * 100
    would round up to 8.
    """
    return math.ceil(Fraction(str(fraction)) * num_weights)


def means(net: nn.Module) -> Tensor:
    """Copy all means (N,)."""
    return torch.cat([tensor.mu.detach().flatten() for tensor in tensors(net).values()])


def sigmas(net: nn.Module) -> Tensor:
    """Copy all standard deviations (N,)."""
    return torch.cat([tensor.sigma.detach().flatten() for tensor in tensors(net).values()])


def fixed(net: nn.Module) -> Tensor:
    """Copy the mask of fixed weights: bool (N,)."""
    return torch.cat([tensor.fixed.flatten() for tensor in tensors(net).values()])


@torch.no_grad()
def write(net: nn.Module, mu_N: Tensor, sigma_N: Tensor, fixed_N: Tensor) -> None:
    """Write all weights back in the order that `means` reads them."""
    parts = tensors(net).values()
    sizes = [tensor.mu.numel() for tensor in parts]
    columns = zip(*(torch.split(all_N, sizes) for all_N in (mu_N, sigma_N, fixed_N)), strict=True)
    for tensor, (mu, sigma, is_fixed) in zip(parts, columns, strict=True):
        tensor.mu.copy_(mu.view_as(tensor.mu))
        tensor.sigma.copy_(sigma.view_as(tensor.sigma))
        tensor.fixed.copy_(is_fixed.view_as(tensor.fixed))


@torch.no_grad()
def add_gradients(net: nn.Module, slope_R: Tensor) -> None:
    """Add `slope_R` to the gradients of the free means, in the order that `means` reads them."""
    start = 0
    for tensor in tensors(net).values():
        free = ~tensor.fixed
        num = int(free.sum())
        if tensor.mu.grad is not None:
            tensor.mu.grad[free] += slope_R[start : start + num]
        start += num


@torch.no_grad()
def mask_gradients(net: nn.Module) -> None:
    """Zero the gradients of fixed entries, so that they do not count when gradients are clipped."""
    for tensor in tensors(net).values():
        for parameter in (tensor.mu, tensor.sigma):
            if parameter.grad is not None:
                parameter.grad.masked_fill_(tensor.fixed, 0)


@contextmanager
def held(net: nn.Module) -> Iterator[None]:
    """Keep fixed means and deviations bit-identical over `optimiser.step()` inside the block.

    Free deviations are kept at the floor or above. Below it, draws use the floor, so that the loss
    has no gradient for the deviation and only the regulariser could raise it again.
    """
    before = [
        (tensor, tensor.mu.detach().clone(), tensor.sigma.detach().clone())
        for tensor in tensors(net).values()
    ]
    yield
    with torch.no_grad():
        for tensor, mu, sigma in before:
            tensor.mu.copy_(torch.where(tensor.fixed, mu, tensor.mu))
            tensor.sigma.clamp_(min=FLOOR)
            tensor.sigma.copy_(torch.where(tensor.fixed, sigma, tensor.sigma))
