"""Pruners of Optuna against its own loop over the same scores."""

import math
from typing import Any

import optuna
import pytest

from tests.search.test_algorithms import ACCURACY, NLL, batches, index, scrambled
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.search.algorithms.sampler import Pruned, _made
from tuneparts.search.segment import Batch
from tuneparts.search.space import Choice, Uniform
from tuneparts.testing import AlgorithmContract

SPACE = {"x": Uniform(low=0.1, high=1.0, log=True), "seconds": Choice(options=(0.0, 0.5, 2.0))}
LEVELS = [2, 4, 6, 8]
PRUNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "median": ("median", {}),
    "late": ("median", {"n_startup_trials": 1, "n_warmup_steps": 4}),
    "percentile": ("percentile", {"percentile": 25.0, "n_min_trials": 3}),
    "threshold": ("threshold", {"lower": -0.5, "upper": 0.8}),
    "halving": (
        "optuna.pruners:SuccessiveHalvingPruner",
        {"min_resource": 2, "reduction_factor": 2},
    ),
    "hyperband": (
        "optuna.pruners:HyperbandPruner",
        {"min_resource": 2, "max_resource": 8, "reduction_factor": 2},
    ),
    "own": (f"{__name__}:Crowded", {"most": 3}),
}
BY_VALUES = ["threshold", "halving", "hyperband", "own"]
"""Those that do not ask how the trials before ended."""


class Crowded(optuna.pruners.BasePruner):
    """A pruner of one's own: of trials with the same last digit, the first few go past a step."""

    def __init__(self, most: int) -> None:
        self.most = most

    def prune(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> bool:
        step = trial.last_step
        alike = [one for one in study.trials if one.number % 3 == trial.number % 3]
        return sum(step in one.intermediate_values for one in alike) > self.most * (8 - step)


def no_pruner() -> str:
    return "not a pruner"


def reached(found: list[Batch]) -> dict[int, int]:
    """Steps that each trial got to."""
    return {index(one): one.until for batch in found for one in batch.run}


def score(number: int, level: int) -> float:
    return math.sin(37 * number + 11 * level + 1)


def made(name: str, count: int = 40, **fields: Any) -> tuple[Pruned, optuna.pruners.BasePruner]:
    """The algorithm, and what makes decisions in Optuna's own loop."""
    pruner, options = PRUNERS[name]
    algorithm = Pruned(num_trials=count, every=2, pruner=pruner, options=options, **fields)
    return algorithm, _made("pruner", pruner, options)


def optimised(metric, pruner: optuna.pruners.BasePruner, objective, count: int = 40) -> None:
    direction = "maximize" if metric is ACCURACY else "minimize"
    study = optuna.create_study(direction=direction, pruner=pruner, study_name="pruned")
    study.optimize(objective, n_trials=count)


@pytest.mark.parametrize("metric", [ACCURACY, NLL], ids=["up", "down"])
@pytest.mark.parametrize("name", PRUNERS)
def test_at_each_point_optuna_would_decide_so_if_trials_ended_there(null_arm, name, metric) -> None:
    stopped: dict[int, int] = {}
    for place, point in enumerate(LEVELS[:-1]):

        def objective(trial: optuna.Trial, place: int = place, point: int = point) -> float:
            for level in LEVELS[: place + 1]:
                trial.report(score(trial.number, level), level)
                is_pruned = trial.should_prune()
                if level == stopped.get(trial.number):
                    raise optuna.TrialPruned
            if is_pruned:
                stopped[trial.number] = point
            return score(trial.number, point)

        optimised(metric, made(name)[1], objective)
    found = reached(
        batches(null_arm("a", algorithm=made(name)[0], space=SPACE), scrambled, metric=metric)
    )
    assert found == {number: stopped.get(number, LEVELS[-1]) for number in range(40)}
    assert len(set(found.values())) > 1


@pytest.mark.parametrize("metric", [ACCURACY, NLL], ids=["up", "down"])
@pytest.mark.parametrize("name", BY_VALUES)
def test_pruners_that_look_at_values_decide_as_in_one_loop_of_optuna(
    null_arm, name, metric
) -> None:
    expected: dict[int, int] = {}

    def objective(trial: optuna.Trial) -> float:
        for level in LEVELS:
            expected[trial.number] = level
            trial.report(score(trial.number, level), level)
            if level < LEVELS[-1] and trial.should_prune():
                raise optuna.TrialPruned
        return score(trial.number, LEVELS[-1])

    algorithm, pruner = made(name)
    optimised(metric, pruner, objective)
    arm = null_arm("a", algorithm=algorithm, space=SPACE)
    assert reached(batches(arm, scrambled, metric=metric)) == expected


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pruner": "medain"}, r"`medain` is not a known pruner. Did you mean `median`\?"),
        (
            {"options": {"n_startup": 3}},
            "`median` says: .* unexpected keyword argument",
        ),
        ({"pruner": "percentile"}, "the pruner `percentile` says: .*percentile"),
        ({"pruner": f"{__name__}:no_pruner"}, "made 'not a pruner', which is no BasePruner"),
        ({"every": 3}, r"arms\['a'\].algorithm.every = 3: .* multiple of `interval` = 2"),
    ],
)
def test_what_no_pruner_takes_is_refused_with_its_arm(
    null_search, null_arm, fields: dict[str, Any], message: str
) -> None:
    algorithm = Pruned(**{"num_trials": 4, "every": 2, **fields})
    arm = null_arm("a", algorithm=algorithm, space=SPACE)
    with pytest.raises((ValueError, ConfigError, UnknownNameError), match=message):
        null_search(arm)


class TestPruned(AlgorithmContract):
    algorithm = Pruned(num_trials=12, every=4, options={"n_startup_trials": 3})


class TestFreePruned(AlgorithmContract):
    algorithm = Pruned(
        num_trials=12, every=4, options={"n_startup_trials": 3}, timing="asynchronous"
    )


class TestOptunaHalving(AlgorithmContract):
    algorithm = made("halving", 12)[0]
