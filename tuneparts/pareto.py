"""Several objectives at once: what is not dominated, and how much of the space it dominates.

Points are rows of numbers of which larger is better; `oriented` makes them so. Everything is exact,
for the few hundred points and few objectives that a search has.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tuneparts.schema import Direction, Metric

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


def hypervolume(points_NM: Points, reference_M: npt.ArrayLike) -> float:
    """The volume between a reference and the points: all that some point dominates.

    Two objectives by a sweep; more by slices along the last one, each of which has one objective
    less (While et al. 2006). Points that are not better than the reference everywhere add nothing.

    Args:
        points_NM: larger is better.
        reference_M: a point that is worse than those of interest.

    Example:
        >>> hypervolume(np.array([[2.0, 1.0], [1.0, 3.0]]), [0.0, 0.0])
        4.0
    """
    reference = np.asarray(reference_M, np.float64)
    above = points_NM[(points_NM > reference).all(axis=1)] - reference
    return _volume(above[front(above)]) if len(above) else 0.0


def _volume(points_NM: Points) -> float:
    """The volume that points above zero dominate; none of them dominates another."""
    if points_NM.shape[1] == 1:
        return float(points_NM.max())
    order = np.argsort(-points_NM[:, -1], kind="stable")
    sorted_NM = points_NM[order]
    heights = sorted_NM[:, -1]
    total = 0.0
    # From the top down: within a slice, the points whose last objective reaches it count.
    for number, (high, low) in enumerate(zip(heights, [*heights[1:], 0.0], strict=True)):
        if high > low:
            slab = sorted_NM[: number + 1, :-1]
            total += (high - low) * _volume(slab[front(slab)])
    return float(total)
