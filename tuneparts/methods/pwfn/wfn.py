"""Weight Fixing Networks: clusters by relative distance (Subia-Waud & Dasmahapatra 2022).

Follows the released code. Each weight votes for its nearest centre; the centre with most votes
takes the weights that are relatively closest to it, as long as their mean distance stays within a
bound. If it takes none, sums of one more power of two are allowed, for the rest of the round;
beyond the highest order the bound doubles, until a centre takes something. Centres are laid out by
the bound of the round, so that early rounds have few of them, and all weights are clustered anew.

Two details are not followed: a quota is rounded up instead of down, and a single weight at no
distance does not count in the mean, as several do not.

Shapes: N weights, R those that remain, K centres.
"""

import torch
from torch import Tensor

from tuneparts.methods.pwfn.centres import nearest, progression
from tuneparts.methods.pwfn.running_mean import prefix
from tuneparts.methods.pwfn.threshold import Clustering, FixingStage, check

BLOCK = 2**22
"""Most distances in memory at once: it stays O(R + BLOCK)."""


def cluster(
    mu_N: Tensor,
    sigma_N: Tensor,
    num_to_fix: int,
    *,
    distance: float,
    smallest: float,
    max_order: int,
) -> Clustering:
    """Fix exactly `num_to_fix` weights.

    Args:
        mu_N: means.
        sigma_N: deviations, which play no part; those of fixed weights become 0.
        num_to_fix: how many; the last cluster is cut off by distance, then by index.
        distance: bound on the mean relative distance of a cluster, in (0, 1).
        smallest: the first positive centre; weights below it are at no distance from 0.
        max_order: most signed powers of two in a sum.
    """
    check(mu_N, sigma_N, num_to_fix, delta=distance, growth=2.0)
    mu_R = mu_N.detach().double()
    index_R = torch.arange(len(mu_N), device=mu_N.device)
    out_mu_N, fixed_N = mu_N.detach().clone(), torch.zeros_like(mu_N, dtype=torch.bool)
    stages: list[FixingStage] = []
    order, bound, quota = 1, distance, num_to_fix
    while quota:
        largest = mu_R.abs().max().item()
        centres_K = progression(smallest, largest, delta=distance, num_terms=order).to(mu_R)
        votes_K = torch.bincount(nearest(mu_R, centres_K), minlength=len(centres_K))
        centre = centres_K[votes_K.argmax()]
        distance_R = (centre - mu_R).abs() / mu_R.abs()
        if centre == 0:
            distance_R[mu_R.abs() < smallest] = 0
        taken = prefix(distance_R, bound)[:quota]
        if not len(taken):
            bound *= 2 if order == max_order else 1
            order = min(order + 1, max_order)
            continue
        out_mu_N[index_R[taken]] = centre.to(out_mu_N.dtype)
        fixed_N[index_R[taken]] = True
        stages.append(FixingStage(order, bound, len(taken)))
        quota -= len(taken)
        bound = distance
        rest = torch.ones_like(index_R, dtype=torch.bool)
        rest[taken] = False
        mu_R, index_R = mu_R[rest], index_R[rest]
    return Clustering(out_mu_N, sigma_N.masked_fill(fixed_N, 0), fixed_N, tuple(stages))


def attraction(
    mu_R: Tensor, centres_K: Tensor, *, temperature: float, zero_below: float
) -> tuple[Tensor, Tensor]:
    """Compute the term of WFN's loss that draws free weights to centres, and its gradient.

    A weight w is at relative distance d_k = |w - c_k| / |w| from centre c_k and belongs to it with
    probability softmin_k(d_k / T). The term is the mean over free weights of the expected distance
    (Subia-Waud & Dasmahapatra 2022). Weights below the bound of the zero rule are at no distance:
    they will be zero as they are.

    Args:
        mu_R: free weights.
        centres_K: at least one value.
        temperature: T; the smaller it is, the more only the relatively nearest centre draws.
        zero_below: weights of less than this size are not drawn.

    Returns:
        The term, a scalar, and its gradient with respect to the weights (R,).
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
