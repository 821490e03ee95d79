"""Trials that only sleep, each for a time that its number decides, as a method of ours."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tuneparts.testing.null import NullConfig, NullLearner
from tuneparts.bench.stock_trials import gather
from tuneparts.schema import Metric
from tuneparts.search.algorithms import Asha, Optuna, Proposals, SuccessiveHalving
from tuneparts.seeding import numpy_generator
from tuneparts.training.learner import Context, Learner

if TYPE_CHECKING:
    from tuneparts.search.spec import Arm

Law: TypeAlias = Literal["normal", "uniform"]
"""Of the logarithm of durations."""
_SIGMA = math.log(10) / (2 * 1.6448536)
"""Of the logarithm of durations: their 5 % and 95 % quantiles are a factor of 10 apart."""


def factor(number: int, *, draw: int = 0, law: Law = "normal") -> float:
    """How long an interval of a trial takes, in medians.

    The logarithm is normal over trials, and 5 and 95 % are a factor of 10 apart; or uniform, and
    the longest takes ten times as long as the shortest.
    """
    rng = numpy_generator(draw, "timing", number)
    if law == "uniform":
        return float(10 ** rng.uniform(-0.5, 0.5))
    return float(math.exp(_SIGMA * rng.standard_normal()))


def place(number: int, draw: int) -> float:
    """The x of a trial, on whichever side of a comparison."""
    return float(numpy_generator(draw, "timing", "x", number).uniform())


class SleepingConfig(NullConfig):
    """The null method with intervals whose length the number of the trial decides."""

    method: Literal["tuneparts.bench.sleeping:SleepingConfig"] = (
        "tuneparts.bench.sleeping:SleepingConfig"  # type: ignore[assignment]
    )
    number: int = 0
    draw: int = 0
    law: Law = "normal"
    folder: str = ""
    """Where workers gather before their first interval, if anywhere."""
    slots: int = 1

    def build(self, context: Context) -> Learner:
        return SleepingLearner(self, context)


class SleepingLearner(NullLearner):
    """Sleeps, and reports a made-up score."""

    def __init__(self, config: SleepingConfig, context: Context) -> None:
        length = factor(config.number, draw=config.draw, law=config.law)
        super().__init__(config.replaced({"seconds": config.seconds * length}), context)
        if config.folder:
            gather(config.folder, config.slots)


class NumberedAsha(Asha):
    """`Asha`, whose configs say the number and the x of their trial; the seed is the draw."""

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:
        yield from _numbered(super().proposals(arm, seed, metric), is_placed=True)


class NumberedHalving(SuccessiveHalving):
    """`SuccessiveHalving` over the same trials."""

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:
        yield from _numbered(super().proposals(arm, seed, metric), is_placed=True)


class NumberedOptuna(Optuna):
    """`Optuna`, whose configs say the number of their trial; where it looks is its own matter."""

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:
        yield from _numbered(super().proposals(arm, seed, metric), is_placed=False)


def _numbered(inner: Proposals, *, is_placed: bool) -> Proposals:
    results: Any = None
    while True:
        try:
            batch = inner.send(results)
        except StopIteration:
            return
        run = []
        for one in batch.run:
            number, draw = one.trial.index, one.trial.seed
            x = {"x": place(number, draw)} if is_placed else {}
            run.append(replace(one, config={**one.config, "number": number, "draw": draw, **x}))
        results = yield replace(batch, run=tuple(run))
