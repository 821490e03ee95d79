"""Trials that only sleep, each for a time that its number decides, as a method of ours."""

import math
from contextlib import suppress
from dataclasses import replace
from typing import Literal, TypeAlias

import tuneparts as tp
from benchmarks.measure import one_arm
from benchmarks.stock_trials import gather
from tuneparts.core.schema import Metric
from tuneparts.core.seeding import numpy_generator
from tuneparts.search.algorithms.base import Algorithm, Proposals
from tuneparts.search.segment import Segment
from tuneparts.testing.null import NullConfig, NullLearner
from tuneparts.training.learner import Context, Learner

Law: TypeAlias = Literal["normal", "uniform"]
"""Of the logarithm of durations; the longest of a uniform one take ten times the shortest."""
_SIGMA = math.log(10) / (2 * 1.6448536)
"""Of the logarithm of durations: their 5 % and 95 % quantiles are a factor of 10 apart."""


def factor(number: int, *, draw: int = 0, law: Law = "normal") -> float:
    """How long an interval of a trial takes, in medians."""
    rng = numpy_generator(draw, "timing", number)
    if law == "uniform":
        return float(10 ** rng.uniform(-0.5, 0.5))
    return float(math.exp(_SIGMA * rng.standard_normal()))


def place(number: int, draw: int) -> float:
    """The x of a trial, on whichever side of a comparison."""
    return float(numpy_generator(draw, "timing", "x", number).uniform())


def search(
    name: str, algorithm: Algorithm, config: NullConfig, *, seed: int = 0, at_once: int = 1
) -> tp.Search:
    """A search of one arm that trains nothing."""
    space = {"x": tp.Uniform(low=0.0, high=1.0)}
    arm = tp.Arm(name=name, config=config, algorithm=algorithm, space=space, at_once=at_once)
    data = {"name": "digits", "num_train": 10, "num_val": 10, "num_test": 10, "seed": 0}
    return one_arm(arm, data, seed=seed)


class SleepingConfig(NullConfig):
    """The null method with intervals whose length the number of the trial decides."""

    method: Literal["benchmarks.sleeping:SleepingConfig"] = "benchmarks.sleeping:SleepingConfig"  # type: ignore[assignment]
    number: int = 0
    draw: int = 0
    law: Law = "normal"
    folder: str = ""
    """Where workers gather before their first interval."""
    slots: int = 1

    def build(self, context: Context) -> Learner:
        gather(self.folder, self.slots)
        length = factor(self.number, draw=self.draw, law=self.law)
        return NullLearner(self.replaced({"seconds": self.seconds * length}), context)


class _Numbered:
    """Mixin of algorithms: a config has the number and the x of its trial; the seed is the draw."""

    def proposals(self, arm: tp.Arm, seed: int, metric: Metric) -> Proposals:
        inner = super().proposals(arm, seed, metric)  # type: ignore[misc]
        with suppress(StopIteration):
            batch = next(inner)
            while True:
                run = tuple(self._numbered(one, seed) for one in batch.run)
                batch = inner.send((yield replace(batch, run=run)))

    def _numbered(self, one: Segment, draw: int) -> Segment:
        own = {"number": one.trial.index, "draw": draw}
        # Optuna chooses its x itself.
        x = {} if isinstance(self, tp.Optuna) else {"x": place(one.trial.index, draw)}
        return replace(one, config={**one.config, **own, **x})


class NumberedAsha(_Numbered, tp.Asha):
    """`Asha` over the trials of a draw."""


class NumberedHalving(_Numbered, tp.SuccessiveHalving):
    """`SuccessiveHalving` over the same trials."""


class NumberedOptuna(_Numbered, tp.Optuna):
    """`Optuna` over trials of the same lengths."""
