"""Values that weights may be fixed to: sums of a few powers of two.

Subia-Waud & Dasmahapatra (2023) sum at most `order` powers of two, with replacement, of which
the smallest is 2^-bits. That makes every n / 2^bits whose |n| has at most `order` set bits, which
needs no enumeration of sums. WFN (Subia-Waud & Dasmahapatra 2022) lays values in a geometric
progression and approximates each one by signed powers of two.

Shapes: K centres, ascending.
"""

import math
from itertools import combinations

import torch
from torch import Tensor

from tuneparts.errors import ConfigError


def grid_integers(bits: int, order: int, largest: float) -> Tensor:
    """The centres within [-largest, largest] times 2^bits: int64 (K,), symmetric, with 0.

    As in the authors' code, sums start from powers of two strictly below `largest`: if `largest` is
    a power of two itself, it needs two terms.

    Args:
        bits: the grid is 2^-bits fine.
        order: terms of a sum.
        largest: bound on the absolute value.
    """
    if bits < 0 or order < 1 or not math.isfinite(largest) or largest < 0:
        raise ConfigError(
            "`bits >= 0`, `order >= 1` and a finite `largest >= 0` must hold, "
            f"but got {bits}, {order} and {largest}."
        )
    top = math.floor(math.ldexp(largest, bits))
    positive = [n for n in _sums(top.bit_length(), order) if n <= top]
    if _is_power_of_two(largest) and top and (order == 1 or top == 1):
        positive.remove(top)
    return torch.tensor([-n for n in reversed(positive)] + [0, *positive])


def rounding_grid(bits: int, order: int, largest: float) -> Tensor:
    """Centres for rounding to the nearest: up to the power of two at or above `largest`.

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
    """WFN's centres: each within a relative distance of about `delta` of its neighbours.

    Args:
        smallest: the first positive value; everything below it is fixed to 0.
        largest: where the progression ends.
        delta: relative distance, in (0, 1).
        num_terms: signed powers of two that approximate a value.

    Returns:
        float64 (K,), symmetric, with 0.
    """
    least_power = math.floor(math.log2(smallest)) - num_terms
    found, value = {0.0}, smallest
    while value <= largest * (1 + delta):
        found.add(_signed_sum(value, delta=delta, num_terms=num_terms, least_power=least_power))
        value *= (1 + delta) / (1 - delta)
    return torch.tensor(sorted(found | {-v for v in found}), dtype=torch.float64)


def _sums(num_bits: int, order: int) -> list[int]:
    """Positive integers below 2^num_bits with at most `order` set bits, ascending."""
    powers = [1 << position for position in range(num_bits)]
    return sorted(
        sum(chosen) for size in range(1, order + 1) for chosen in combinations(powers, size)
    )


def _is_power_of_two(value: float) -> bool:
    return value > 0 and math.frexp(value)[0] == 0.5


def _signed_sum(value: float, *, delta: float, num_terms: int, least_power: int) -> float:
    """A greedy sum of signed powers of two that ends once it is relatively within `delta`."""
    total = 0.0
    for _ in range(num_terms):
        rest = value - total
        if abs(rest) < delta * value:
            break
        power = max(round(math.log2(abs(rest))), least_power)
        total += math.copysign(2.0**power, rest)
    return total
