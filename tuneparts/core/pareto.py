"""Several objectives at once: what is not dominated.

Points are rows of numbers of which larger is better; `oriented` makes them so. Everything is exact,
for the few hundred points and few objectives that a search has.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tuneparts.core.schema import Direction, Metric

Points = npt.NDArray[np.float64]
"""Float64 (N, M): N points, M objectives."""


def oriented(points_NM: npt.ArrayLike, metrics: Sequence[Metric]) -> Points:
    """Turn the sign of metrics of which smaller is better."""
    signs = [1.0 if metric.direction is Direction.UP else -1.0 for metric in metrics]
    return np.asarray(points_NM, np.float64).reshape(-1, len(metrics)) * signs


def front(points_NM: Points) -> npt.NDArray[np.bool_]:
    """Mark the points that no other dominates; bool (N,).

    One point dominates another if it is nowhere worse and somewhere better. Equal points do not
    dominate each other. A point with a NaN is never in the front.

    Example:
        >>> front(np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 1.0]])).tolist()
        [True, True, False]
    """
    known_N = ~np.any(np.isnan(points_NM), axis=1)
    no_worse_NN = np.all(points_NM[:, None] >= points_NM[None], axis=2)
    better_NN = np.any(points_NM[:, None] > points_NM[None], axis=2)
    dominated_N = np.any(no_worse_NN & better_NN, axis=0)
    return np.asarray(known_N & ~dominated_N)
