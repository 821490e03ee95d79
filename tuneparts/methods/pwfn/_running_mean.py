"""Clustering by votes and a running mean: the rule of the printed algorithms, and WFN.

Each weight votes for its nearest centre. The centre with most votes takes the weights that are
closest to it, as long as their mean distance stays within a bound (Subia-Waud & Dasmahapatra 2023,
algorithm 1). If it takes none, which the paper leaves open, sums of more powers of two are tried,
then delta grows; each new cluster starts from single powers and the first delta again, because a
delta that stayed large would let one centre take everything.

Weight Fixing Networks (Subia-Waud & Dasmahapatra 2022) measure distances relative to the weight.
Their released code allows one more power for the rest of the round if a centre takes nothing;
beyond the highest order the bound doubles, until a centre takes something. Centres are laid out by
the bound of the round, so that early rounds have few of them, and all weights are clustered anew.
Two details are not followed: a quota is rounded up instead of down, and a single weight at no
distance does not count in the mean, as several do not.

Shapes: N weights, R those that remain, K centres.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tuneparts.methods.pwfn._centres import grid_integers, nearest, progression
from tuneparts.methods.pwfn._threshold import SIGMA_FLOOR, Clustering, FixingStage, check_finite

BLOCK = 2**22
"""Most distances of `attraction` in memory at once: it stays O(R + BLOCK)."""

_Election = Callable[[Tensor, Tensor], tuple[int, float, Tensor, Tensor]]
"""From the remaining means (R,), float64, and their indices to order, bound, centre and distances,
one of which is within the bound."""


def cluster(
    mu_N: Tensor,
    sigma_N: Tensor,
    num_to_fix: int,
    *,
    bits: int = 7,
    max_order: int = 4,
    delta: float = 1.0,
    growth: float = 2.0,
    zero_rule: bool = True,
) -> Clustering:
    """Fix exactly `num_to_fix` weights by the printed algorithm; see `threshold.cluster`."""
    scale_N = sigma_N.detach().double().clamp(min=SIGMA_FLOOR)
    zero_below = 2.0**-bits if zero_rule else 0.0

    def elect(mu_R: Tensor, index_R: Tensor) -> tuple[int, float, Tensor, Tensor]:
        largest = mu_R.abs().max().item()
        is_small_R = mu_R.abs() < zero_below
        # Votes do not depend on the bound: each order holds one election, whatever it grows to.
        elected: list[tuple[int, float, Tensor, Tensor]] = []
        for order in range(1, max_order + 1):
            centres_K = grid_integers(bits, order, largest).double().mul(2.0**-bits).to(mu_R)
            choice_R = nearest(mu_R, centres_K).masked_fill(is_small_R, len(centres_K) // 2)
            centre = centres_K[torch.bincount(choice_R, minlength=len(centres_K)).argmax()]
            distance_R = (centre - mu_R).abs() / scale_N[index_R]
            if centre == 0:
                distance_R[is_small_R] = 0
            closest = distance_R.min().item()
            if closest <= delta:
                return order, delta, centre, distance_R
            elected.append((order, closest, centre, distance_R))
        bound = delta
        while True:
            bound *= growth
            for order, closest, centre, distance_R in elected:
                if closest <= bound:
                    return order, bound, centre, distance_R

    return _clustered(mu_N, sigma_N, num_to_fix, elect)


def wfn(
    mu_N: Tensor,
    sigma_N: Tensor,
    num_to_fix: int,
    *,
    distance: float,
    smallest: float,
    max_order: int,
) -> Clustering:
    """Fix exactly `num_to_fix` weights as Weight Fixing Networks do; their deviations become 0.

    Clusters have a mean relative distance of at most `distance`, in (0, 1). Weights below
    `smallest`, the first positive centre, are at no distance from 0.
    """
    order = 1

    def elect(mu_R: Tensor, _: Tensor) -> tuple[int, float, Tensor, Tensor]:
        nonlocal order
        largest, bound = mu_R.abs().max().item(), distance
        while True:
            centres_K = progression(smallest, largest, delta=distance, num_terms=order).to(mu_R)
            votes_K = torch.bincount(nearest(mu_R, centres_K), minlength=len(centres_K))
            centre = centres_K[votes_K.argmax()]
            distance_R = (centre - mu_R).abs() / mu_R.abs()
            if centre == 0:
                distance_R[mu_R.abs() < smallest] = 0
            if (distance_R <= bound).any():
                return order, bound, centre, distance_R
            bound *= 2 if order == max_order else 1
            order = min(order + 1, max_order)

    found = _clustered(mu_N, sigma_N, num_to_fix, elect)
    sigma_N = sigma_N.masked_fill(found.fixed_N, 0)
    return Clustering(found.mu_N, sigma_N, found.fixed_N, found.stages)


def _clustered(mu_N: Tensor, sigma_N: Tensor, num_to_fix: int, elect: _Election) -> Clustering:
    check_finite(mu_N, sigma_N)
    mu_R = mu_N.detach().double()
    index_R = torch.arange(len(mu_N), device=mu_N.device)
    out_mu_N, out_sigma_N = mu_N.detach().clone(), sigma_N.detach().clone()
    fixed_N = torch.zeros_like(mu_N, dtype=torch.bool)
    stages: list[FixingStage] = []
    quota = num_to_fix
    while quota:
        order, bound, centre, distance_R = elect(mu_R, index_R)
        taken = prefix(distance_R, bound)[:quota]
        where = index_R[taken]
        out_mu_N[where] = centre.to(out_mu_N.dtype)
        out_sigma_N[where] = mu_R[taken].std(correction=0).to(out_sigma_N.dtype)
        fixed_N[where] = True
        stages.append(FixingStage(order, bound, len(taken)))
        quota -= len(taken)
        rest = torch.ones_like(index_R, dtype=torch.bool)
        rest[taken] = False
        mu_R, index_R = mu_R[rest], index_R[rest]
    return Clustering(out_mu_N, out_sigma_N, fixed_N, tuple(stages))


def prefix(distance_R: Tensor, delta: float) -> Tensor:
    """Find the closest weights whose mean distance is at most `delta`; indices, closest first.

    Weights at no distance are taken and do not count in the mean: otherwise many small weights,
    which the zero rule puts at no distance from 0, would pay for large ones to be zeroed.
    """
    # Only a window of distances is sorted; it is widened while the mean allows all of it.
    window = 4 * delta
    while True:
        inside = (distance_R <= window).nonzero().squeeze(1)
        sorted_, order = distance_R[inside].sort(stable=True)
        # In the type of the distances: as integers they would make the bound float32.
        counts = (sorted_ > 0).cumsum(0).to(distance_R)
        num = int((sorted_.cumsum(0) <= delta * counts).sum())
        is_all = len(inside) == len(distance_R)
        if num < len(inside) or is_all or not len(inside):
            return inside[order[:num]]
        window *= 4


def attraction(
    mu_R: Tensor, centres_K: Tensor, *, temperature: float, zero_below: float
) -> tuple[Tensor, Tensor]:
    """The term of WFN's loss that draws free weights to centres, and its gradient (R,).

    A weight at relative distance d_k = |w - c_k| / |w| from centre c_k belongs to it with
    probability softmin_k(d_k / T), T the temperature. The term is the mean expected distance;
    weights below the bound of the zero rule are at none.
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
