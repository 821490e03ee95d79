"""Values that weights may be fixed to: sums of a few powers of two, or a k-means codebook.

PWFN (Subia-Waud & Dasmahapatra 2023) sums at most `order` powers of two, with replacement, of which
the smallest is 2^-bits. That makes every n / 2^bits whose |n| has at most `order` set bits, which
needs no enumeration of sums. WFN (Subia-Waud & Dasmahapatra 2022) lays values in a geometric
progression and approximates each one by signed powers of two.

Shapes: N numbers, R weights, K centres, ascending.
"""

import math
from itertools import combinations

import torch
from torch import Tensor


def grid_integers(bits: int, order: int, largest: float) -> Tensor:
    """PWFN's centres within [-largest, largest], with 0, in units of 2^-bits: int64 (K,)."""
    top = math.floor(math.ldexp(largest, bits))
    powers = [1 << position for position in range(top.bit_length())]
    sums = (sum(chosen) for size in range(1, order + 1) for chosen in combinations(powers, size))
    positive = sorted(n for n in sums if n <= top)
    # As in the authors' code, sums start from powers of two strictly below `largest`: if it is a
    # power of two itself, it needs two terms.
    if top and math.frexp(largest)[0] == 0.5 and (order == 1 or top == 1):
        positive.remove(top)
    return torch.tensor([-n for n in reversed(positive)] + [0, *positive])


def rounding_grid(bits: int, order: int, largest: float) -> Tensor:
    """Compute centres for rounding, up to the power of two at or above `largest`: float64 (K,)."""
    top = 2.0 ** max(-bits, math.ceil(math.log2(largest))) if largest > 0 else 0.0
    top_integer = math.floor(math.ldexp(top, bits))
    integers = {*grid_integers(bits, order, top).tolist(), -top_integer, top_integer}
    return torch.tensor(sorted(integers), dtype=torch.float64) * 2.0**-bits


def progression(smallest: float, largest: float, *, delta: float, num_terms: int) -> Tensor:
    """Compute WFN's centres: 0, and values a relative distance of about `delta` apart; float64.

    They begin with `smallest`, end below `largest`, and are sums of so many signed powers of two,
    taken greedily until the sum is relatively within `delta` of the value.
    """
    least_power = math.floor(math.log2(smallest)) - num_terms
    found, value = {0.0}, smallest
    while value < largest:
        total = 0.0
        for _ in range(num_terms):
            rest = value - total
            if abs(rest) < delta * value:
                break
            power = max(round(math.log2(abs(rest))), least_power)
            total += math.copysign(2.0**power, rest)
        found |= {total, -total}
        value *= (1 + delta) / (1 - delta)
    return torch.tensor(sorted(found), dtype=torch.float64)


def kmeans(values_N: Tensor, num_centres: int, *, max_steps: int = 300) -> Tensor:
    """Run k-means on a line to a fixed point of Lloyd's algorithm (Lloyd 1982): float64 (K,).

    Centres start at equal distances from the smallest to the largest number, which serves large
    weights best (Han et al. 2016) and needs no random numbers. Centres without members are dropped.
    """
    sorted_N = values_N.detach().double().sort().values
    sums = torch.cat([sorted_N.new_zeros(1), sorted_N.cumsum(0)])
    low, high = sorted_N[0].item(), sorted_N[-1].item()
    centres_K = torch.linspace(low, high, num_centres, dtype=sums.dtype, device=sums.device)
    for _ in range(max_steps):
        # Clusters on a line are intervals of the sorted numbers: a step costs K log N.
        middles = (centres_K[1:] + centres_K[:-1]) / 2
        inner = torch.searchsorted(sorted_N, middles, right=True)
        ends = torch.cat([inner.new_zeros(1), inner, inner.new_full((1,), len(sorted_N))])
        counts_K = ends.diff()
        is_used = counts_K > 0
        moved_K: Tensor = (sums[ends[1:]] - sums[ends[:-1]])[is_used] / counts_K[is_used]
        if torch.equal(moved_K, centres_K):
            break
        centres_K = moved_K
    return centres_K


def nearest(mu_R: Tensor, centres_K: Tensor) -> Tensor:
    """Find the index of each weight's nearest centre: int64 (R,); the lower of two at a tie."""
    middles = (centres_K[1:] + centres_K[:-1]) / 2
    return torch.bucketize(mu_R, middles)
