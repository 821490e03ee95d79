"""Clustering by a threshold: the authors' rule, in time linear in the number of weights.

The centre that captures most weights within delta standard deviations takes them all, then the
next, while any captures anything; then sums of more powers of two are allowed, or delta grows
(Subia-Waud & Dasmahapatra 2023, released code).

The centres that capture one weight are neighbours on the grid, an interval. So weights are
counted by interval, and the greedy choice runs on the counts alone: no matrix of all distances.

Shapes: N weights, R those that remain, K centres, U intervals that occur.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tuneparts.core.errors import ConfigError
from tuneparts.methods.pwfn._centres import grid_integers

SIGMA_FLOOR = 2.0**-20
"""Distances divide by at least this: a fixed weight may have a deviation of exactly 0."""
_CHUNK = 1 << 17
"""Weights per block of work: float64 copies of so many stay in the cache."""
_MAX_TABLE = 1 << 22
"""Largest lookup table: grid points, or pairs of centres."""
_INT = npt.NDArray[np.int64]


@dataclass(frozen=True)
class FixingStage:
    order: int
    delta: float
    num_fixed: int


@dataclass(frozen=True)
class Clustering:
    """All weights after a round; entries that are not fixed are unchanged."""

    mu_N: Tensor
    sigma_N: Tensor
    """A fixed weight gets the standard deviation of all means that its centre took together."""
    fixed_N: Tensor
    stages: tuple[FixingStage, ...]


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
    """Fix exactly `num_to_fix` weights; the last cluster is cut off by distance, then by index.

    A weight is at distance |c - mu| / sigma from a centre c, a sum of at most `max_order` powers of
    two from 2^-bits on. The threshold starts as `delta`, and grows by the factor `growth`. By the
    zero rule, weights below 2^-bits are at no distance from 0.
    """
    check_finite(mu_N, sigma_N)
    mu_R, sigma_R = mu_N.detach(), sigma_N.detach().clamp(min=SIGMA_FLOOR)
    index_R = torch.arange(len(mu_N), device=mu_N.device)
    out_mu_N, out_sigma_N = mu_N.detach().clone(), sigma_N.detach().clone()
    fixed_N = torch.zeros_like(mu_N, dtype=torch.bool)
    stages: list[FixingStage] = []
    order, quota, odd = 1, num_to_fix, True
    while quota:
        grid = _Grid(bits, order, mu_R.abs().max().item(), mu_N.device)
        target_R = grid.targets(mu_R, sigma_R, delta, quota, zero_rule=zero_rule)
        taken = (target_R >= 0).nonzero().squeeze(1)
        if len(taken):
            centre = target_R[taken].long()
            sigma_K = _spread(mu_R[taken].double() - grid.values_K[centre], centre, grid.values_K)
            where = index_R[taken]
            out_mu_N[where] = grid.values_K.to(out_mu_N.dtype)[centre]
            out_sigma_N[where] = sigma_K.to(out_sigma_N.dtype)[centre]
            fixed_N[where] = True
            rest = (target_R < 0).nonzero().squeeze(1)
            mu_R, sigma_R, index_R = mu_R[rest], sigma_R[rest], index_R[rest]
        stages.append(FixingStage(order, delta, len(taken)))
        quota -= len(taken)
        # As in the authors' code, order and delta grow in turn; delta alone at the highest order.
        if odd and order < max_order:
            order += 1
        else:
            delta *= growth
        odd = not odd
    return Clustering(out_mu_N, out_sigma_N, fixed_N, tuple(stages))


def check_finite(mu_N: Tensor, sigma_N: Tensor) -> None:
    if not (torch.isfinite(mu_N).all() and torch.isfinite(sigma_N).all()):
        raise ConfigError(
            "means and deviations must be finite. The net has diverged: lower the learning rate."
        )


class _Grid:
    """Centres (K,), float64, with the number of centres at or below each grid point."""

    def __init__(self, bits: int, order: int, largest: float, device: torch.device) -> None:
        if math.ldexp(largest, bits + 1) > _MAX_TABLE:
            raise ConfigError(
                f"weights must stay below {_MAX_TABLE // 2 ** (bits + 1)} on a grid of {bits} "
                f"fractional bits, but the largest is {largest}. The net has diverged: lower the "
                "learning rate, or decay its weights."
            )
        integers = grid_integers(bits, order, largest)
        self.bits, self.num, self.zero = bits, len(integers), len(integers) // 2
        self.values_K = (integers.double() / 2**bits).to(device)
        self._top = int(integers[-1])
        points = torch.arange(-self._top - 1, self._top + 1)
        self._upto = torch.searchsorted(integers, points, right=True).int().to(device)

    def targets(
        self, mu_R: Tensor, sigma_R: Tensor, delta: float, quota: int, *, zero_rule: bool
    ) -> Tensor:
        """Find the centre that takes each weight (R,), -1 for none; at most `quota` are taken."""
        pieces = zip(torch.split(mu_R, _CHUNK), torch.split(sigma_R, _CHUNK), strict=True)
        cells = [self._intervals(mu, sigma, delta, zero_rule=zero_rule) for mu, sigma in pieces]
        cells_U, counts_U, rank_R = _histogram(torch.cat(cells), (self.num + 1) ** 2)
        target_U, last, surplus = _pick(cells_U, counts_U, num_centres=self.num, quota=quota)
        target_R = torch.from_numpy(target_U).to(mu_R.device)[rank_R]
        if surplus:  # release the furthest of the last cluster
            members = (target_R == last).nonzero().squeeze(1)
            mu, sigma = mu_R[members].double(), sigma_R[members].double()
            distance = (self.values_K[last] - mu).abs() / sigma
            if zero_rule and last == self.zero:
                distance[mu.abs() < 2.0**-self.bits] = 0
            target_R[members[~smallest(distance, len(members) - surplus)]] = -1
        return target_R

    def _intervals(self, mu: Tensor, sigma: Tensor, delta: float, *, zero_rule: bool) -> Tensor:
        """Encode each weight's interval [lo, hi) of centres as lo * (K + 1) + hi; 0 if empty."""
        scale = 2.0**self.bits  # exact, so that quotients in these units are the same bits
        m, s = mu.double() * scale, sigma.double() * scale
        reach = delta * s
        high, low = m + reach, m - reach
        last, first = high.floor(), low.ceil()
        # The sums are rounded; where a grid point is close, the quotient itself decides.
        slack = (m.abs() + reach + 1) * 2.0**-45
        for end, edge, step in ((high, last, -1), (low, first, 1)):
            point = end.round()
            close = ((end - point).abs() <= slack).nonzero().squeeze(1)
            if len(close):
                near = point[close]
                is_captured = (near - m[close]).abs() / s[close] <= delta
                edge[close] = torch.where(is_captured, near, near + step)
        upper = self._count_upto(last)
        lower = self._count_upto(first - 1)
        if zero_rule:
            near_zero = m.abs() < 1
            upper = torch.where(near_zero, upper.clamp(min=self.zero + 1), upper)
            lower = torch.where(near_zero, lower.clamp(max=self.zero), lower)
        is_empty = lower >= upper
        # Pairs of so many centres that int32 cannot hold them are rare, and cost a conversion.
        if (self.num + 1) ** 2 > 2**31 - 1:
            lower = lower.long()
        return (lower * (self.num + 1) + upper).masked_fill_(is_empty, 0)

    def _count_upto(self, point: Tensor) -> Tensor:
        index = point.clamp_(-self._top - 1, self._top).add_(self._top + 1)
        return self._upto[index.int()]


def _spread(offset: Tensor, centre: Tensor, values_K: Tensor) -> Tensor:
    """Compute the population standard deviation of the offsets from each centre: float64 (K,)."""
    num = len(values_K)
    count_K = torch.bincount(centre, minlength=num).clamp(min=1)
    mean_K = torch.bincount(centre, weights=offset, minlength=num) / count_K
    squares = (offset - mean_K[centre]).square_()
    return (torch.bincount(centre, weights=squares, minlength=num) / count_K).sqrt()


def _histogram(cell_R: Tensor, num_cells: int) -> tuple[_INT, _INT, Tensor]:
    """List the intervals that occur (U,), how often (U,), and the rank of each weight's (R,)."""
    if num_cells > _MAX_TABLE:
        cells_U, rank_R, counts_U = torch.unique(cell_R, return_inverse=True, return_counts=True)
        return cells_U.cpu().numpy().astype(np.int64), counts_U.cpu().numpy(), rank_R
    counts = torch.bincount(cell_R, minlength=num_cells)
    cells_U = counts.nonzero().squeeze(1)
    rank = torch.zeros(num_cells, dtype=torch.int32, device=cell_R.device)
    rank[cells_U] = torch.arange(len(cells_U), dtype=torch.int32, device=cell_R.device)
    return cells_U.cpu().numpy(), counts[cells_U].cpu().numpy(), rank[cell_R]


def _pick(
    cells_U: _INT, counts_U: _INT, *, num_centres: int, quota: int
) -> tuple[npt.NDArray[np.int32], int, int]:
    """Pick centres greedily: that of each interval (U,) or -1, the last, and its surplus."""
    low_U, high_U = np.divmod(cells_U, num_centres + 1)

    def captured_by(some: slice | _INT) -> _INT:
        edges = [
            np.bincount(side_U[some], weights=counts_U[some], minlength=num_centres + 1)
            for side_U in (low_U, high_U)
        ]
        return np.cumsum(edges[0] - edges[1])[:num_centres].astype(np.int64)

    captured_K = captured_by(slice(None))
    target_U = np.full(len(cells_U), -1, dtype=np.int32)
    is_open_U = low_U < high_U
    last, surplus = -1, 0
    while quota > 0:
        last = int(captured_K.argmax())  # the first of equals: the most negative centre
        if captured_K[last] <= 0:
            break
        chosen = np.flatnonzero(is_open_U & (low_U <= last) & (high_U > last))
        target_U[chosen] = last
        is_open_U[chosen] = False
        captured_K -= captured_by(chosen)
        quota -= int(counts_U[chosen].sum())
        surplus = max(0, -quota)
    return target_U, last, surplus


def smallest(values_N: Tensor, num: int) -> Tensor:
    """Mask exactly `num` entries (N,): the smallest, and of equal ones the first."""
    if num <= 0:
        return torch.zeros_like(values_N, dtype=torch.bool)
    limit = values_N.kthvalue(num).values
    chosen_N = values_N < limit
    ties = (values_N == limit).nonzero().squeeze(1)
    chosen_N[ties[: num - int(chosen_N.sum())]] = True
    return chosen_N
