"""Clustering by a running mean: the rule of the printed algorithms.

Each weight votes for its nearest centre. The centre with most votes takes the weights that are
closest to it, as long as their mean distance stays within delta (Subia-Waud & Dasmahapatra 2023,
algorithm 1).

The printed algorithm leaves open what happens when the elected centre takes nothing. Here sums of
more powers of two are tried first; when none of any order takes a weight, delta grows. Each new
cluster starts from single powers and the first delta again, because a delta that stayed large would
let one centre take everything. The last cluster is cut off at the quota.

Shapes: N weights, R those that remain, K centres.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tuneparts.methods.pwfn.centres import nearest
from tuneparts.methods.pwfn.threshold import SIGMA_FLOOR, Clustering, FixingStage, check

Centres = Callable[[int, float], Tensor]
"""From (order, largest absolute weight) to centres: float64 (K,), ascending."""


def cluster(
    mu_N: Tensor,
    sigma_N: Tensor,
    num_to_fix: int,
    *,
    centres: Centres,
    max_order: int = 4,
    delta: float = 1.0,
    growth: float = 2.0,
    zero_below: float = 2.0**-7,
) -> Clustering:
    """Fix exactly `num_to_fix` weights.

    Args:
        mu_N: means, any floating type and device.
        sigma_N: the scale of each weight's distance: |c - mu| / sigma.
        num_to_fix: how many; the last cluster is cut off by distance, then by index.
        centres: gives the candidate centres of each order.
        max_order: the last order before delta grows.
        delta: the first bound on the mean distance.
        growth: factor by which delta grows.
        zero_below: weights below it are at no distance from 0; 0 for no such rule.
    """
    check(mu_N, sigma_N, num_to_fix, delta=delta, growth=growth)
    mu_R, scale_R = mu_N.detach().double(), sigma_N.detach().double().clamp(min=SIGMA_FLOOR)
    index_R = torch.arange(len(mu_N), device=mu_N.device)
    out_mu_N, out_sigma_N = mu_N.detach().clone(), sigma_N.detach().clone()
    fixed_N = torch.zeros_like(mu_N, dtype=torch.bool)
    stages: list[FixingStage] = []
    quota = num_to_fix
    while quota:
        order, limit, centre, distance_R = _first_to_take(
            mu_R, scale_R, centres, range(1, max_order + 1), delta, growth, zero_below
        )
        taken = prefix(distance_R, limit)[:quota]
        where = index_R[taken]
        out_mu_N[where] = centre.to(out_mu_N.dtype)
        out_sigma_N[where] = mu_R[taken].std(correction=0).to(out_sigma_N.dtype)
        fixed_N[where] = True
        stages.append(FixingStage(order, limit, len(taken)))
        quota -= len(taken)
        rest = torch.ones_like(index_R, dtype=torch.bool)
        rest[taken] = False
        mu_R, scale_R, index_R = mu_R[rest], scale_R[rest], index_R[rest]
    return Clustering(out_mu_N, out_sigma_N, fixed_N, tuple(stages))


def _first_to_take(
    mu_R: Tensor,
    scale_R: Tensor,
    centres: Centres,
    orders: range,
    delta: float,
    growth: float,
    zero_below: float,
) -> tuple[int, float, Tensor, Tensor]:
    """Find the first (order, delta) whose elected centre has a weight within delta.

    Returns:
        The order, the delta, the centre, and the distances to it (R,).
    """
    largest = mu_R.abs().max().item()
    # Votes do not depend on delta: each order holds one election, whatever delta grows to.
    elected: list[tuple[int, float, Tensor, Tensor]] = []
    for order in orders:
        candidates_K = centres(order, largest).to(mu_R)
        centre = candidates_K[votes(mu_R, candidates_K, zero_below).argmax()]
        distance_R = (centre - mu_R).abs() / scale_R
        if centre == 0:
            distance_R[mu_R.abs() < zero_below] = 0
        closest = distance_R.min().item()
        if closest <= delta:
            return order, delta, centre, distance_R
        elected.append((order, closest, centre, distance_R))
    while True:
        delta *= growth
        for order, closest, centre, distance_R in elected:
            if closest <= delta:
                return order, delta, centre, distance_R


def votes(mu_R: Tensor, centres_K: Tensor, zero_below: float) -> Tensor:
    """Count the weights that each centre is nearest to: int64 (K,)."""
    choice_R = nearest(mu_R, centres_K)
    zero = (centres_K == 0).nonzero().squeeze(1)
    if len(zero):
        choice_R = torch.where(mu_R.abs() < zero_below, zero, choice_R)
    return torch.bincount(choice_R, minlength=len(centres_K))


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
