"""Population-based training (Jaderberg et al. 2017)."""

import dataclasses
import math
from collections.abc import Callable, Mapping

import numpy as np
from pydantic import Field

from tuneparts.core.schema import Metric
from tuneparts.core.seeding import numpy_generator
from tuneparts.search.algorithms import base
from tuneparts.search.arm import Arm
from tuneparts.search.events import TrialId
from tuneparts.search.segment import Batch
from tuneparts.search.space import Dimension, Value

_MOST_EXPLORED = 1000
"""Variations of a donor's values that the constraint may refuse; then they stay as they are."""


class Pbt(base.Algorithm):
    """All members train for a round, and then the worst copy from the best.

    They copy weights and hyperparameters, and vary the latter before the next round starts. A
    member that failed, or has no finite score, copies too; with none left to copy from all fail.
    """

    is_adaptive = True
    takes_points = True
    replaces_failed = True

    population: int = Field(ge=4)
    num_rounds: int = Field(ge=2)
    quantile: float = Field(default=0.25, gt=0, le=0.5)
    """Fraction of the population that copies, and that is copied from."""
    resample: float = Field(default=0.25, ge=0, le=1)
    """Probability that a copied value is drawn anew instead of perturbed."""

    def trials_per_seed(self, space: Mapping[str, Dimension]) -> int:  # noqa: ARG002
        return self.population

    def cost(self, arm: Arm) -> base._Cost:
        return dataclasses.replace(super().cost(arm), sequential=arm.config.steps)

    def check(self, arm: Arm) -> None:
        steps = self.num_rounds * arm.config.interval
        if arm.config.steps % steps:
            raise ValueError(
                f"arms['{arm.name}'].config.steps = {arm.config.steps}: a round is a whole number "
                f"of intervals, so it must be a multiple of num_rounds * interval = {steps}"
            )

    def proposals(self, arm: Arm, seed: int, metric: Metric) -> base.Proposals:
        values = {i: base.draw(arm, seed, i) for i in range(self.population)}
        donors: dict[int, int] = {}
        length = arm.config.steps // self.num_rounds
        for number in range(self.num_rounds):
            bounds = (number * length, (number + 1) * length)
            segments = {}
            for i, drawn in values.items():
                source = TrialId(arm.name, seed, donors[i]) if i in donors else None
                whole = base.whole_trial(arm, seed=seed, index=i, values=drawn)
                segments[i] = base._stretch(whole, number=number, bounds=bounds, donor=source)
            results = yield Batch(tuple(segments.values()))
            scores = {i: results[one.trial].score(metric) for i, one in segments.items()}
            if not any(map(math.isfinite, scores.values())):
                return
            exploiting = numpy_generator(seed, "exploit", arm.name, number)
            donors = _exploit(scores, quantile=self.quantile, better=metric.better, rng=exploiting)
            rng = numpy_generator(seed, "explore", arm.name, number)
            copied = {i: values[donors[i]] for i in sorted(donors)}
            values |= {i: self._explored(arm, donor, rng) for i, donor in copied.items()}

    def _explored(
        self, arm: Arm, donor: Mapping[str, Value], rng: np.random.Generator
    ) -> dict[str, Value]:
        for _ in range(_MOST_EXPLORED):
            values = {
                path: dim.sample(rng)
                if rng.random() < self.resample
                else dim.perturb(donor[path], rng)
                for path, dim in arm.space.items()
            }
            if arm.allows(values):
                return values
        return dict(donor)


def _exploit(
    scores: Mapping[int, float],
    *,
    quantile: float,
    better: Callable[[float, float], bool],
    rng: np.random.Generator,
) -> dict[int, int]:
    """Choose for each of the worst trials one of the best to copy: index -> that of its donor.

    Ties are broken by index. Trials without a finite score are among the worst, however many.
    """
    sign = -1.0 if better(1.0, 0.0) else 1.0
    broken = sorted(i for i, score in scores.items() if not math.isfinite(score))
    ranked = sorted(scores.keys() - set(broken), key=lambda i: (sign * scores[i], i))
    count = min(round(len(scores) * quantile) or 1, len(scores) // 2)
    best, worst = ranked[:count], {*(ranked + broken)[-count:], *broken}
    return {i: best[int(rng.integers(len(best)))] for i in sorted(worst)} if best else {}
