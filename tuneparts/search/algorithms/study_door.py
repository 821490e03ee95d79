"""The way between an arm's space and a study of Optuna: define-by-run asking, and telling.

Conditional dimensions are parameters that exist only in trials where their option was chosen,
which Optuna's samplers are made for. Normal numbers are asked for by their quantile.
"""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tuneparts.core.errors import ConfigError
from tuneparts.core.schema import Metric
from tuneparts.core.seeding import numpy_generator
from tuneparts.search import draws
from tuneparts.search.segment import Result
from tuneparts.search.space import Dimension, Value

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.distributions import BaseDistribution

    from tuneparts.search.arm import Arm

MOST_ASKED = 20
"""Proposals of a sampler that the constraint may refuse in a row; then an allowed one is drawn."""


class StudyDoor:
    """A study that speaks of an arm: asked for its values, told of its results.

    Points are enqueued before anything is asked.

    Args:
        study: made with the directions of the metrics.
        arm: whose space it is.
        seed: of the replicate.
        metrics: the objectives, in the order of the study's directions.
    """

    def __init__(self, study: "Study", arm: "Arm", seed: int, metrics: Sequence[Metric]) -> None:
        self.study = study
        self._arm = arm
        self._seed = seed
        self._metrics = metrics
        for point in arm.points:
            study.enqueue_trial({name: value for name, (value, _) in parameters(arm.space, point)})

    def ask(self) -> tuple["Trial", dict[str, Value]]:
        """Ask for the values of the next trial; what the constraint does not allow is skipped."""
        from optuna.trial import TrialState

        for _ in range(MOST_ASKED):
            trial, values = self._asked()
            if draws.allows(self._arm, values):
                return trial, values
            self.study.tell(trial, state=TrialState.FAIL)
        rng = numpy_generator(self._seed, "allowed", self._arm.name, len(self.study.trials))
        drawn = draws.sample(self._arm, rng)
        self.study.enqueue_trial({n: value for n, (value, _) in parameters(self._arm.space, drawn)})
        trial, values = self._asked()
        if not draws.allows(self._arm, values):
            raise ConfigError(
                f"an allowed draw of `{self._arm.name}` is the same in Optuna, but {drawn} became "
                f"{values}. Let `decoded` of its dimensions undo `encoded`."
            )
        return trial, values

    def tell(self, trial: "Trial", result: Result) -> None:
        """Tell how a trial ended; one without finite scores has failed."""
        from optuna.trial import TrialState

        scores = result.scores(self._metrics)
        if any(map(math.isnan, scores)):
            self.study.tell(trial, state=TrialState.FAIL)
        else:
            self.study.tell(trial, scores if len(scores) > 1 else scores[0])

    def _asked(self) -> tuple["Trial", dict[str, Value]]:
        def ask(name: str, distribution: "BaseDistribution") -> Any:
            return suggested(trial, name, distribution)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about options that Optuna calls experimental
            trial = self.study.ask()
            values = {path: dim.suggest(path, ask) for path, dim in self._arm.space.items()}
        return trial, values


def suggested(trial: "Trial", name: str, distribution: "BaseDistribution") -> Any:
    """Draw a parameter from a distribution, within a trial."""
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    match distribution:
        case FloatDistribution(low=low, high=high, log=log, step=step):
            return trial.suggest_float(name, low, high, log=log, step=step)
        case IntDistribution(low=low, high=high, log=log, step=step):
            return trial.suggest_int(name, low, high, log=log, step=step)
        case CategoricalDistribution(choices=choices):
            return trial.suggest_categorical(name, choices)
    raise ConfigError(
        f"a `distribution` is one of Optuna's float, int or categorical ones, but that of `{name}` "
        f"is {distribution!r:.100}."
    )


def parameters(
    space: Mapping[str, Dimension], values: Mapping[str, Value]
) -> Iterator[tuple[str, tuple[Any, "BaseDistribution"]]]:
    """What values are in Optuna: name -> parameter and its distribution."""
    for path, value in values.items():
        for leaf in space[path].leaves(path, value):
            parameter = leaf.dimension.encoded(leaf.value)
            yield leaf.name, (parameter, leaf.dimension.distribution())
