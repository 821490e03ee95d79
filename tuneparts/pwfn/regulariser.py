"""The pull that makes standard deviations grow up to a cutoff (Subia-Waud & Dasmahapatra 2023).

Weights whose noise hurts the loss resist it, so that sigma becomes a budget for how far each
weight may move. On a locally quadratic loss with curvature h, the squared form settles at
S * kappa / (kappa + h) with kappa = alpha * sqrt(2 / pi).
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from tuneparts.pwfn.conversion import layers
from tuneparts.pwfn.gaussian import GaussianTensor

Form = Literal["squared", "hinge"]
"""`squared`: sum of |eps| / 2 * relu(S - sigma)^2, as the authors' code has it; `hinge`: sum of
relu(S - sigma), a constant pull below the cutoff S."""


@torch.no_grad()
def pull(net: nn.Module, alpha: float, cutoff: float, form: Form = "squared") -> None:
    """Add the gradient of `alpha * penalty` to that of the free weights, after `backward`.

    Biases and fixed weights are not pulled. Layers that were not sampled since the last step have
    no gradient and are left alone.
    """
    for tensor in _regularised(net):
        if tensor.sigma.grad is not None:
            short = (cutoff - tensor.sigma).clamp_(min=0).mul_(~tensor.fixed)
            slope = short.sign_() if form == "hinge" else short.mul_(_eps(tensor).abs())
            tensor.sigma.grad.sub_(slope, alpha=alpha)


def penalty(net: nn.Module, cutoff: float, form: Form = "squared") -> Tensor:
    """The same as a term of the loss; draws are constants in it."""
    total = torch.zeros(())
    for tensor in _regularised(net):
        short = (cutoff - tensor.sigma).clamp(min=0) * ~tensor.fixed
        term = short if form == "hinge" else _eps(tensor).abs() / 2 * short.square()
        total = total.to(term) + term.sum()
    return total


def exposure(*, lr: float, momentum: float, alpha: float, steps: int) -> float:
    """How much of the way to the cutoff a flat weight has gone: 1 - exp(-X) for this X.

    It makes settings of different lengths comparable: the same alpha on a small data set leaves
    standard deviations where they started.
    """
    mean_abs_eps = math.sqrt(2 / math.pi)
    return lr / (1 - momentum) * alpha * mean_abs_eps * steps


def _regularised(net: nn.Module) -> list[GaussianTensor]:
    return [layer.weight for layer in layers(net).values()]


def _eps(tensor: GaussianTensor) -> Tensor:
    if tensor.eps is None:
        raise RuntimeError("the squared form needs a draw: run the net inside `sampled` first.")
    return tensor.eps
