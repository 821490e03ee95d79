"""Which trial of a seed is selected: the rule of a search."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, FiniteFloat, field_validator

from tuneparts.core.registry import Named, Registry
from tuneparts.core.schema import Direction, Metric, best_index, objective_metric

Points = npt.NDArray[np.float64]
"""Float64 (N, M): N points, M objectives."""


def oriented(points_NM: npt.ArrayLike, metrics: Sequence[Metric]) -> Points:
    """Turn the sign of metrics of which smaller is better."""
    signs = [1.0 if metric.direction is Direction.UP else -1.0 for metric in metrics]
    return np.asarray(points_NM, np.float64).reshape(-1, len(metrics)) * signs


def front(points_NM: Points) -> npt.NDArray[np.bool_]:
    """Mark the points that no other dominates, bool (N,); never one with a NaN."""
    known_N = ~np.any(np.isnan(points_NM), axis=1)
    no_worse_NN = np.all(points_NM[:, None] >= points_NM[None], axis=2)
    better_NN = np.any(points_NM[:, None] > points_NM[None], axis=2)
    dominated_N = np.any(no_worse_NN & better_NN, axis=0)
    return np.asarray(known_N & ~dominated_N)


Rows = Mapping[int, Mapping[str, float]]
"""Index of each finished trial -> its last metrics."""


class Selection(Named):
    """Chooses one finished trial of a seed by validation scores, sizes and costs.

    A subclass defines `choose` and `words`. It is given no test scores.
    """

    registry = Registry(
        "selection",
        {"best": "tuneparts.core.selection:Best", "within": "tuneparts.core.selection:Within"},
    )
    is_lasting: ClassVar[bool] = False
    """Whether a trial that is neither chosen nor in the Pareto front of those that finished is not
    chosen later either. Then its checkpoint is not kept."""

    @abstractmethod
    def choose(self, rows: Rows, objectives: Sequence[Metric]) -> int | None:
        """The index of the chosen trial; the first objective is the selection metric."""

    @abstractmethod
    def words(self, objectives: Sequence[Metric]) -> str:
        """What a table says: "the trial ..." with the rule in a few words."""


class Best(Selection):
    """The best trial by the first objective.

    Ties go to the better one by the next objective, if there is one, and then to the smaller index.
    """

    is_lasting = True

    def choose(self, rows: Rows, objectives: Sequence[Metric]) -> int | None:
        found: int | None = None
        for metric in objectives:
            scores = {i: row.get(metric.name) for i, row in rows.items()}
            best = best_index(scores, metric)
            if best is None:
                break
            found = best
            rows = {i: rows[i] for i, score in scores.items() if score == scores[best]}
        return found

    def words(self, objectives: Sequence[Metric]) -> str:
        return f"the trial selected by {objectives[0].name}"


class Within(Best):
    """The best trial by the first objective among those that keep to limits.

    A seed of which no trial does has no selected trial, and is counted.
    """

    limits: dict[str, FiniteFloat] = Field(min_length=1)
    """Metric -> the most that a trial may have; the least where larger is better."""

    @field_validator("limits")
    @classmethod
    def _check_limits(cls, limits: dict[str, float]) -> dict[str, float]:
        for name in limits:
            objective_metric(name)
        return limits

    def choose(self, rows: Rows, objectives: Sequence[Metric]) -> int | None:
        for name, limit in self.limits.items():
            better = objective_metric(name).better
            kept = {i: row.get(name, math.nan) for i, row in rows.items()}
            rows = {i: rows[i] for i, x in kept.items() if x == limit or better(x, limit)}
        return super().choose(rows, objectives)

    def words(self, objectives: Sequence[Metric]) -> str:
        limits = [
            f"{name} {'≥' if objective_metric(name).direction is Direction.UP else '≤'} {limit:g}"
            for name, limit in self.limits.items()
        ]
        return f"the best trial by {objectives[0].name} with {' and '.join(limits)}"
