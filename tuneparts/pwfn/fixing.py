"""What is fixed stays fixed: all weights of a net as one vector, and holding entries still.

A zero gradient is not a zero update: momentum, weight decay and Adam's moments move a weight on.
So the optimiser's step runs inside `held`, which puts fixed entries back bit for bit. Which
entries are fixed is a buffer of the net, and so part of its `state_dict`.

Shapes: N all weights and biases of Gaussian layers, in the order of the net.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tuneparts.pwfn.conversion import tensors
from tuneparts.pwfn.gaussian import FLOOR


def means(net: nn.Module) -> Tensor:
    """All means (N,), a copy."""
    return torch.cat([tensor.mu.detach().flatten() for tensor in tensors(net).values()])


def sigmas(net: nn.Module) -> Tensor:
    """All standard deviations (N,), a copy."""
    return torch.cat([tensor.sigma.detach().flatten() for tensor in tensors(net).values()])


def fixed(net: nn.Module) -> Tensor:
    """Which weights are fixed: bool (N,), a copy."""
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
    """Add to the gradients of the R free means, in the order that `means` reads them."""
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
    """Around `optimiser.step()`: fixed means and deviations come out bit-identical.

    Free deviations are kept at the floor or above: below it a weight would no longer feel the
    loss, and could be revived by the regulariser only.
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
