"""Trials that only sleep, each for a time that its number decides, on any side of a comparison."""

import contextlib
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tuneparts.bench.null import NullConfig, NullLearner
from tuneparts.schema import Metric
from tuneparts.search.algorithms import Asha, Optuna, Proposals
from tuneparts.seeding import numpy_generator
from tuneparts.training.learner import Context, Learner

if TYPE_CHECKING:
    from tuneparts.search.spec import Arm

_SIGMA = math.log(10) / (2 * 1.6448536)
"""Of the logarithm of durations: their 5 % and 95 % quantiles are a factor of 10 apart."""
_PATIENCE = 300.0
"""Seconds that a worker waits for the others to start."""


def factor(number: int) -> float:
    """How long an interval of a trial takes, in medians; log-normal over trials."""
    return float(math.exp(_SIGMA * numpy_generator(0, "timing", number).standard_normal()))


def score(x: float, part: float) -> float:
    """What a trial at x reports when it has spent this part of its passes."""
    return (1 - (x - 0.7) ** 2) * part


def gather(folder: str, slots: int) -> None:
    """Wait until so many worker processes have started; later calls of a process return at once.

    A comparison of schedules then does not depend on how long processes take to start.
    """
    mine = Path(folder) / str(os.getpid())
    if mine.exists():
        return
    mine.touch()
    end = time.monotonic() + _PATIENCE
    while len(os.listdir(folder)) < slots and time.monotonic() < end:
        time.sleep(0.02)
    with contextlib.suppress(FileExistsError):
        _began(Path(folder)).touch(exist_ok=False)


def opened(folder: Path) -> float:
    """When the first worker began its first interval: all had gathered, or it had no patience."""
    return _began(folder).stat().st_mtime


def _began(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.began")


class SleepingConfig(NullConfig):
    """The null method with intervals whose length the number of the trial decides."""

    method: Literal["tuneparts.bench.sleeping:SleepingConfig"] = (
        "tuneparts.bench.sleeping:SleepingConfig"  # type: ignore[assignment]
    )
    number: int = 0
    folder: str = ""
    """Where workers gather before their first interval, if anywhere."""
    slots: int = 1

    def build(self, context: Context) -> Learner:
        return SleepingLearner(self, context)


class SleepingLearner(NullLearner):
    """Sleeps, and reports a made-up score."""

    def __init__(self, config: SleepingConfig, context: Context) -> None:
        super().__init__(
            config.replaced({"seconds": config.seconds * factor(config.number)}), context
        )
        if config.folder:
            gather(config.folder, config.slots)


class NumberedAsha(Asha):
    """`Asha`, whose configs say the number of their trial."""

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:
        yield from _numbered(super().proposals(arm, seed, metric))


class NumberedOptuna(Optuna):
    """`Optuna`, whose configs say the number of their trial."""

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:
        yield from _numbered(super().proposals(arm, seed, metric))


def _numbered(inner: Proposals) -> Proposals:
    results: Any = None
    while True:
        try:
            batch = inner.send(results)
        except StopIteration:
            return
        run = [replace(s, config={**s.config, "number": s.trial.index}) for s in batch.run]
        results = yield replace(batch, run=tuple(run))


def stock_trainable(
    folder: str, slots: int, seconds: float, passes: int
) -> Callable[[Mapping[str, Any]], None]:
    """The same trials as a function for Ray's `Tuner`, whose config has `drawn`: x and number."""

    def train(config: Mapping[str, Any]) -> None:
        from ray import tune

        gather(folder, slots)
        drawn = config["drawn"]
        length = seconds * factor(drawn["number"])
        for done in range(1, passes + 1):
            time.sleep(length)
            tune.report({"score": score(drawn["x"], done / passes)})

    return train
