"""Whole-number shares of a total by the method of largest remainders (Hamilton 1792)."""

import math
from collections.abc import Sequence
from fractions import Fraction

from tuneparts.core.errors import ConfigError


def sizes(total: int, proportions: Sequence[float]) -> tuple[int, ...]:
    """Split `total` into whole numbers in these proportions; the sum is exactly `total`.

    Every share is its quota rounded down, plus one for the largest remainders; the earlier share
    wins a tie. Proportions need not sum to one: `(80, 10, 10)` means `(0.8, 0.1, 0.1)`.

    Args:
        total: how many things there are to share.
        proportions: one non-negative number per share, not all zero.

    Example:
        >>> sizes(10, (0.5, 0.3, 0.2))
        (5, 3, 2)
    """
    if total < 0:
        raise ConfigError(f"`total >= 0` must hold, but got {total}.")
    if not all(math.isfinite(p) and p >= 0 for p in proportions) or not any(proportions):
        raise ConfigError(
            "proportions must be finite, non-negative and not all zero, "
            f"but got {tuple(proportions)}."
        )
    # Decimals as written, so that 0.1 is a tenth and ties do not hang on binary rounding.
    exact = [Fraction(repr(float(p))) for p in proportions]
    quotas = [total * p / sum(exact) for p in exact]
    shares = [math.floor(quota) for quota in quotas]
    by_remainder = sorted(range(len(quotas)), key=lambda i: (shares[i] - quotas[i], i))
    for i in by_remainder[: total - sum(shares)]:
        shares[i] += 1
    return tuple(shares)
