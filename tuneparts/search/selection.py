"""Which trial of a replicate is chosen: the one rule, for followers and for reports."""

import math
from collections.abc import Mapping

from tuneparts.schema import Metric


def best_index(scores: Mapping[int, float | None], metric: Metric) -> int | None:
    """The index with the best score; ties go to the smaller index.

    With a single candidate there is nothing to choose, so it needs no score. Otherwise
    candidates without one, or with NaN, are out.
    """
    if len(scores) == 1:
        return next(iter(scores))
    best: int | None = None
    best_score = float("nan")
    for index in sorted(scores):
        score = scores[index]
        if score is None or math.isnan(score):
            continue
        if best is None or metric.better(score, best_score):
            best, best_score = index, score
    return best
