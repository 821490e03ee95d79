"""The term of WFN's loss that draws free weights to where they will be fixed.

Subia-Waud & Dasmahapatra (2022): a weight w is at relative distance d_k = |w - c_k| / |w| from
centre c_k and belongs to it with probability softmin_k(d_k / T). The term is the mean over free
weights of the expected distance. Weights below the bound of the zero rule are at no distance: they
will be zero as they are.

Shapes: R free weights, K centres.
"""

import torch
from torch import Tensor

BLOCK = 2**22
"""Most distances held at once: memory stays O(R + BLOCK)."""


def attraction(
    mu_R: Tensor, centres_K: Tensor, *, temperature: float, zero_below: float
) -> tuple[Tensor, Tensor]:
    """The term (a scalar) and its gradient with respect to the weights (R,).

    Args:
        mu_R: free weights.
        centres_K: what they are drawn to, at least one value.
        temperature: T; the smaller, the more only the relatively nearest centre draws.
        zero_below: weights of less than this size are not drawn.
    """
    mu_R = mu_R.detach()
    large = (mu_R.abs() >= zero_below).nonzero().squeeze(1)
    total, slope_R = mu_R.new_zeros(()), torch.zeros_like(mu_R)
    for block in torch.split(large, max(1, BLOCK // len(centres_K))):
        with torch.enable_grad():
            mu = mu_R[block].requires_grad_()
            distance_RK = (mu[:, None] - centres_K).abs() / mu.abs()[:, None]
            belonging_RK = torch.softmax(-distance_RK / temperature, dim=1)
            expected = (belonging_RK * distance_RK).sum()
            (slope,) = torch.autograd.grad(expected, mu)
        total += expected.detach()
        slope_R[block] = slope
    return total / len(mu_R), slope_R / len(mu_R)
