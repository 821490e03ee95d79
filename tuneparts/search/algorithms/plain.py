"""Algorithms that decide everything before the first result: fixed, random and grid search."""

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import Field

from tuneparts.core.schema import Metric
from tuneparts.search import draws
from tuneparts.search.algorithms.base import Algorithm, Proposals, drawn_trials, whole_trial
from tuneparts.search.segment import Batch
from tuneparts.search.space import Dimension, Value
from tuneparts.search.space.ranges import MOST_IN_GRID

if TYPE_CHECKING:  # an arm holds an algorithm
    from tuneparts.search.arm import Arm


class Fixed(Algorithm):
    """One trial per seed, at the arm's own config."""

    is_adaptive = False
    has_space = False
    keeps_first_trials = True

    def trials_per_seed(self, space: Mapping[str, Dimension]) -> int:  # noqa: ARG002
        return 1

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:  # noqa: ARG002
        yield Batch((whole_trial(arm, seed=seed, index=0, values={}),))


class RandomSearch(Algorithm):
    """Trials at independent draws from the space."""

    is_adaptive = False
    takes_points = True
    keeps_first_trials = True

    num_trials: int = Field(gt=0)

    def trials_per_seed(self, space: Mapping[str, Dimension]) -> int:  # noqa: ARG002
        return self.num_trials

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:  # noqa: ARG002
        yield Batch(tuple(drawn_trials(arm, seed, range(self.num_trials))))


class GridSearch(Algorithm):
    """A trial for every combination of the space's values that the constraint allows."""

    is_adaptive = False
    keeps_first_trials = True

    def trials_per_seed(self, space: Mapping[str, Dimension]) -> int:
        return math.prod(len(dim.grid() or ()) for dim in space.values())

    def num_trials_of(self, arm: "Arm") -> int:
        if arm.constraint is None:
            return self.trials_per_seed(arm.space)
        return len(self._combinations(arm))

    def check(self, arm: "Arm") -> None:
        loose = [path for path, dim in arm.space.items() if not dim.grid()]
        if loose:
            raise ValueError(
                "grid search needs a Choice for each dimension, or a number with a `step` and at "
                f"most {MOST_IN_GRID:,} steps, not {loose}"
            )

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:  # noqa: ARG002
        yield Batch(
            tuple(
                whole_trial(arm, seed=seed, index=i, values=values)
                for i, values in enumerate(self._combinations(arm))
            )
        )

    def _combinations(self, arm: "Arm") -> list[dict[str, Value]]:
        options = [dim.grid() or () for dim in arm.space.values()]
        combinations = itertools.product(*options)
        return [
            values
            for values in (dict(zip(arm.space, one, strict=True)) for one in combinations)
            if draws.allows(arm, values)
        ]
