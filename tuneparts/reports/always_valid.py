"""Intervals that may be looked at after every replicate, and stopping rules made of them.

The mean of normal differences of unknown variance has a confidence sequence from the t statistic
with a normal mixture over effect sizes (Lai 1976; Wang and Ramdas 2024): under any true mean, the
chance that the interval ever leaves it out, at whatever number of replicates, is at most 5 %.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuneparts.errors import ConfigError
from tuneparts.reports.statistics import Interval, estimate

MIXTURE = 1.0
"""Variance of the effect sizes that the sequence is tuned to; it is valid for any."""


def confidence_sequence(values: Sequence[float], level: float = 0.95) -> Interval:
    """The interval of the mean after these values, valid at any time of looking.

    Early on it is unbounded. The e-process is `sqrt(1 / (1 + n g))` times the ratio of t densities;
    the interval holds the means at which it is below `1 / (1 - level)`, in closed form.

    Example:
        >>> confidence_sequence([0.01, 0.012, 0.011, 0.013, 0.009, 0.011]).low > 0
        True
    """
    num, point = len(values), estimate(values)
    everything = Interval(-math.inf, math.inf, level)
    if num < 2 or math.isnan(point.se):
        return everything
    spread = 1 + num * MIXTURE
    ratio = (math.sqrt(spread) / (1 - level)) ** (2 / num)
    if ratio >= spread:
        return everything
    t_squared = (num - 1) * (ratio - 1) / (1 - ratio / spread)
    half = math.sqrt(t_squared) * point.se
    return Interval(point.mean - half, point.mean + half, level)


@dataclass(frozen=True)
class Decision:
    """What the replicates so far allow to say of a pair of arms."""

    num: int
    mean: float
    interval: Interval
    verdict: str
    """`better`, `worse` or `equivalent` of the first arm; empty while nothing is decided."""


def decide(
    differences: Sequence[float], *, within: float | None = None, is_up: bool = True
) -> Decision:
    """Decide a pair by its paired differences, first arm minus second, in the order they came.

    Args:
        differences: one per replicate.
        within: margin of equivalence.
        is_up: whether more is better.
    """
    if within is not None and not within > 0:
        raise ConfigError(f"a margin of equivalence is above 0, but got {within}.")
    found = confidence_sequence(differences)
    verdict = ""
    if found.low > 0 or found.high < 0:
        verdict = "better" if (found.low > 0) == is_up else "worse"
    if within is not None and -within < found.low and found.high < within:
        verdict = "equivalent"
    return Decision(len(differences), estimate(differences).mean, found, verdict)
