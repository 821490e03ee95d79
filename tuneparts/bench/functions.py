"""Standard functions for optimisers, on the unit cube, each with 0 as its smallest value."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

Function: TypeAlias = Callable[[Sequence[float]], float]

_HEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
_RATES = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
_CENTRES = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def branin(u: Sequence[float]) -> float:
    """Two dimensions, three optima of equal height (Dixon & Szegö 1978)."""
    x, y = 15 * u[0] - 5, 15 * u[1]
    bowl = (y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6) ** 2
    return bowl + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10 - 0.39788735772973816


def hartmann6(u: Sequence[float]) -> float:
    """Six dimensions, four bumps (Dixon & Szegö 1978)."""
    exponents = np.sum(_RATES * (np.asarray(u) - _CENTRES) ** 2, axis=1)
    return 3.322368011391339 - float(_HEIGHTS @ np.exp(-exponents))


def rosenbrock(u: Sequence[float]) -> float:
    """A curved valley in as many dimensions as there are numbers, as a logarithm: log(1 + f)."""
    x = [4 * v - 2 for v in u]
    valley = sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in itertools.pairwise(x))
    return math.log1p(valley)


FUNCTIONS: dict[str, tuple[Function, int]] = {
    "branin": (branin, 2),
    "hartmann6": (hartmann6, 6),
    "rosenbrock3": (rosenbrock, 3),
}
"""Name -> function and number of dimensions."""


SCHEDULE_DIMS = 2


def trained(loss: float, point: Sequence[float], time: float) -> float:
    """The loss after one more round of training at a point, of which the best moves with time.

    A toy for populations: no point is good from the start to the end, so a schedule beats them all.

    Args:
        loss: before the round.
        point: on the unit square.
        time: share of the rounds that is over.
    """
    best = (0.9 - 0.6 * time, 0.3 + 0.6 * time)
    distance = math.dist(point, best)
    return loss * math.exp(-0.5 * math.exp(-((distance / 0.25) ** 2)))
