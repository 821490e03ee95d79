"""The rule of clustering as the authors state it, one weight and one centre at a time."""

import math
from itertools import product

import numpy as np
import numpy.typing as npt

from tuneparts.methods.pwfn._threshold import SIGMA_FLOOR

Floats = npt.NDArray[np.float64]


def literal_candidates(bits: int, order: int, largest: float) -> Floats:
    """All sums of `order` powers of two or zeros that are at most `largest`, and their negatives.

    Ascending. The powers go from 2^-bits to the last one below `largest`.
    """
    powers = [0.0]
    while largest > 0 and 2.0 ** (len(powers) - 1 - bits) < largest:
        powers.append(2.0 ** (len(powers) - 1 - bits))
    sums = {sum(terms) for terms in product(powers, repeat=order)}
    positive = {value for value in sums if value <= largest} | {0.0}
    return np.array(sorted(positive | {-value for value in positive if value}))


def literal_cluster(
    mu_N: Floats,
    sigma_N: Floats,
    num_to_fix: int,
    *,
    bits: int = 7,
    max_order: int = 4,
    delta: float = 1.0,
    growth: float = 2.0,
    zero_rule: bool = True,
) -> tuple[Floats, Floats, npt.NDArray[np.bool_], list[tuple[int, float, int]]]:
    """Greedy cover: the centre that captures most free weights takes them, nearest first.

    Returns:
        means, deviations, which are fixed, and (order, delta, number fixed) of each stage.
    """
    out_mu_N, out_sigma_N = mu_N.copy(), sigma_N.copy()
    free, stages, order = set(range(len(mu_N))), list[tuple[int, float, int]](), 1
    quota = num_to_fix
    while quota > 0:
        centres = literal_candidates(bits, order, max(abs(float(mu_N[i])) for i in free))
        distance_KN = np.abs(centres[:, None] - mu_N) / np.maximum(sigma_N, SIGMA_FLOOR)
        if zero_rule:
            distance_KN[np.ix_(centres == 0, np.abs(mu_N) < 2.0**-bits)] = 0
        captured: dict[float, set[int]] = {float(centre): set() for centre in centres}
        for k, i in zip(*np.nonzero(distance_KN <= delta), strict=True):
            captured[float(centres[k])].add(int(i))
        quota_before = quota
        while quota > 0 and captured:
            centre = max(captured, key=lambda c: len(captured[c] & free))  # the lowest of equals
            k = int(np.searchsorted(centres, centre))
            near = sorted(captured.pop(centre) & free, key=lambda i, k=k: (distance_KN[k, i], i))
            if not near:
                break
            taken = near[:quota]
            out_mu_N[taken], out_sigma_N[taken] = centre, mu_N[taken].std()
            free -= set(taken)
            quota -= len(taken)
        stages.append((order, delta, quota_before - quota))
        # A higher order and a wider threshold take turns, until no higher order is left.
        if order < max_order and len(stages) % 2:
            order += 1
        else:
            delta *= growth
    return out_mu_N, out_sigma_N, ~np.isin(np.arange(len(mu_N)), list(free)), stages


def literal_prefix(distances: list[float], delta: float) -> list[int]:
    """Take the closest as long as the mean of those at a distance stays within delta."""
    order = sorted(range(len(distances)), key=lambda i: distances[i])
    taken: list[int] = []
    total, num_positive = 0.0, 0
    for i in order:
        total += distances[i]
        num_positive += distances[i] > 0
        if total > delta * num_positive:
            break
        taken.append(i)
    return taken


def literal_wfn(
    weights: list[float], num_to_fix: int, *, delta: float, rounds: int, number: int
) -> tuple[list[float], list[bool]]:
    """Weight Fixing Networks as its code does it, one weight at a time.

    The bound of round `number` (from 0) of `rounds` is delta * (rounds - number), for the layout
    of the centres as well. The number of powers starts at one and never falls within a round; past
    21 the bound doubles instead, and falls back when a cluster was found.
    """
    zero = 2.0**-7
    allowed = delta * max(1, rounds - number)
    weights = list(weights)
    fixed = [False] * len(weights)
    powers, bound = 1, allowed
    while sum(fixed) < num_to_fix:
        free = [i for i in range(len(weights)) if not fixed[i]]
        centres = _literal_progression(zero, max(abs(weights[i]) for i in free), allowed, powers)
        votes = dict.fromkeys(centres, 0)
        for i in free:
            votes[min(centres, key=lambda c: (abs(weights[i] - c), c))] += 1
        winner = max(centres, key=lambda c: (votes[c], -c))
        distances = []
        for i in free:
            gap = abs(winner - weights[i])
            relative = gap / abs(weights[i]) if weights[i] else math.inf
            distances.append(0.0 if winner == 0 and abs(weights[i]) < zero else relative)
        taken = [free[place] for place in literal_prefix(distances, bound)]
        for i in taken[: num_to_fix - sum(fixed)]:
            weights[i], fixed[i] = winner, True
        if taken:
            bound = allowed
        elif powers < 21:
            powers += 1
        else:
            bound *= 2
    return weights, fixed


def _literal_progression(zero: float, largest: float, step: float, powers: int) -> list[float]:
    """Values a relative step apart, each as a sum of at most so many signed powers of two."""
    found, value = {0.0}, zero
    while value < largest:
        total = 0.0
        for _ in range(powers):
            rest = value - total
            if total and abs(rest) < step * value:
                break
            exponent = max(round(math.log2(abs(rest))), -7 - powers)
            total += math.copysign(2.0**exponent, rest)
        found |= {total, -total}
        value *= (1 + step) / (1 - step)
    return sorted(found)
