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

from tuneparts.core.errors import ConfigError


def grid_integers(bits: int, order: int, largest: float) -> Tensor:
    """Compute PWFN's centres within [-largest, largest], in units of 2^-bits.

    Args:
        bits: the grid is 2^-bits fine.
        order: most powers of two in a sum.
        largest: bound on the absolute value.

    Returns:
        int64 (K,), symmetric, with 0.

    Example:
        >>> grid_integers(bits=3, order=1, largest=1.5).tolist()  # eighths
        [-8, -4, -2, -1, 0, 1, 2, 4, 8]
    """
    if bits < 0 or order < 1 or not math.isfinite(largest) or largest < 0:
        raise ConfigError(
            "`bits >= 0`, `order >= 1` and a finite `largest >= 0` must hold, "
            f"but got {bits}, {order} and {largest}."
        )
    top = math.floor(math.ldexp(largest, bits))
    positive = [n for n in _sums(top.bit_length(), order) if n <= top]
    # As in the authors' code, sums start from powers of two strictly below `largest`: if it is a
    # power of two itself, it needs two terms.
    if _is_power_of_two(largest) and top and (order == 1 or top == 1):
        positive.remove(top)
    return torch.tensor([-n for n in reversed(positive)] + [0, *positive])


def rounding_grid(bits: int, order: int, largest: float) -> Tensor:
    """Compute centres for rounding, up to the power of two at or above `largest`.

    Returns:
        float64 (K,): multiples of 2^-bits with at most `order` set bits.
    """
    top = 2.0 ** max(-bits, math.ceil(math.log2(largest))) if largest > 0 else 0.0
    integers = grid_integers(bits, order, top).tolist()
    top_integer = math.floor(math.ldexp(top, bits))
    extra = [] if top_integer in integers else [-top_integer, top_integer]
    return torch.tensor(
        [math.ldexp(n, -bits) for n in sorted([*integers, *extra])], dtype=torch.float64
    )


def progression(smallest: float, largest: float, *, delta: float, num_terms: int) -> Tensor:
    """Compute WFN's centres: each within a relative distance of about `delta` of its neighbours.

    Args:
        smallest: the first positive value; everything below it is fixed to 0.
        largest: the progression ends below it.
        delta: relative distance, in (0, 1).
        num_terms: signed powers of two that approximate a value.

    Returns:
        float64 (K,), symmetric, with 0.
    """
    least_power = math.floor(math.log2(smallest)) - num_terms
    found, value = {0.0}, smallest
    while value < largest:
        found.add(_signed_sum(value, delta=delta, num_terms=num_terms, least_power=least_power))
        value *= (1 + delta) / (1 - delta)
    return torch.tensor(sorted(found | {-v for v in found}), dtype=torch.float64)


def _sums(num_bits: int, order: int) -> list[int]:
    """List the positive integers below 2^num_bits with at most `order` set bits, ascending."""
    powers = [1 << position for position in range(num_bits)]
    return sorted(
        sum(chosen) for size in range(1, order + 1) for chosen in combinations(powers, size)
    )


def _is_power_of_two(value: float) -> bool:
    return value > 0 and math.frexp(value)[0] == 0.5


def _signed_sum(value: float, *, delta: float, num_terms: int, least_power: int) -> float:
    """Sum signed powers of two greedily until the sum is relatively within `delta` of the value."""
    total = 0.0
    for _ in range(num_terms):
        rest = value - total
        if abs(rest) < delta * value:
            break
        power = max(round(math.log2(abs(rest))), least_power)
        total += math.copysign(2.0**power, rest)
    return total


def kmeans(values_N: Tensor, num_centres: int, *, max_steps: int = 300) -> Tensor:
    """Run k-means on a line to a fixed point of Lloyd's algorithm (Lloyd 1982).

    Centres start at equal distances from the smallest to the largest number, which serves large
    weights best (Han et al. 2016) and needs no random numbers. Centres without members are dropped.

    Returns:
        At most `num_centres` centres: float64 (K,).
    """
    if num_centres < 1 or not values_N.numel():
        raise ConfigError(
            "`num_centres >= 1` and at least one number must be given, but got "
            f"{num_centres} and {values_N.numel()} numbers."
        )
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
