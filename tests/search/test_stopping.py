"""Pruners of Optuna against obvious versions of what they decide."""

import math
import statistics
from typing import Any

import optuna
import pytest

from tests.search.test_algorithms import ACCURACY, NLL, batches, index, quantile, scrambled
from tuneparts.errors import ConfigError, UnknownNameError
from tuneparts.search.algorithms import Pruned
from tuneparts.search.segment import Batch
from tuneparts.search.space import Choice, Uniform
from tuneparts.testing import AlgorithmContract

SPACE = {"x": Uniform(low=0.1, high=1.0, log=True), "seconds": Choice(options=(0.0, 0.5, 2.0))}


class Even(optuna.pruners.BasePruner):
    """A pruner of one's own: trials with an odd number stop at once."""

    def prune(self, study: Any, trial: Any) -> bool:
        return bool(trial.number % 2)


def no_pruner() -> str:
    return "not a pruner"


def reached(found: list[Batch]) -> dict[int, int]:
    """Passes that each trial got to."""
    return {index(one): one.until for batch in found for one in batch.run}


def slowly(count: int, levels: list[int], sign: int, goes_on) -> dict[int, int]:
    """Judge trial after trial: each to its end, against those before it that were as far."""
    paths: dict[int, list[float]] = {}
    for number in range(count):
        own: list[float] = []
        for place, level in enumerate(levels):
            own.append(sign * scrambled_at(number, level))
            if level == levels[-1]:
                break
            others = [path[: place + 1] for path in paths.values() if len(path) > place]
            if len(others) >= 5 and not goes_on(own, others):
                break
        paths[number] = own
    return {number: levels[len(path) - 1] for number, path in paths.items()}


def scrambled_at(number: int, level: int) -> float:
    return math.sin(37 * number + 11 * level + 1)


@pytest.mark.parametrize("metric", [ACCURACY, NLL], ids=["up", "down"])
def test_the_median_rule_compares_the_best_so_far_with_scores_at_the_point(
    null_arm, metric
) -> None:
    arm = null_arm("a", algorithm=Pruned(num_trials=40, every=2), space=SPACE)
    expected = slowly(
        40,
        [2, 4, 6, 8],
        1 if metric is ACCURACY else -1,
        lambda own, others: max(own) >= statistics.median(path[-1] for path in others),
    )
    found = reached(batches(arm, scrambled, metric=metric))
    assert found == expected
    assert len(set(found.values())) > 1


@pytest.mark.parametrize("metric", [ACCURACY, NLL], ids=["up", "down"])
def test_the_best_share_of_each_point_goes_on(null_arm, metric) -> None:
    algorithm = Pruned(num_trials=40, every=2, pruner="percentile", options={"percentile": 25.0})
    arm = null_arm("a", algorithm=algorithm, space=SPACE)
    expected = slowly(
        40,
        [2, 4, 6, 8],
        1 if metric is ACCURACY else -1,
        lambda own, others: max(own) >= quantile([path[-1] for path in others], 0.75),
    )
    assert reached(batches(arm, scrambled, metric=metric)) == expected


def test_steps_of_a_pruner_are_passes_and_its_trials_those_of_a_point(null_arm) -> None:
    late = Pruned(num_trials=9, every=2, options={"n_startup_trials": 1, "n_warmup_steps": 6})
    found = reached(batches(null_arm("a", algorithm=late, space=SPACE), scrambled))
    assert set(found.values()) == {6, 8}
    own = Pruned(num_trials=8, every=2, pruner=f"{__name__}:Even")
    found = reached(batches(null_arm("a", algorithm=own, space=SPACE), scrambled))
    assert list(found.values()) == [8, 2, 4, 2, 6, 2, 4, 2]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pruner": "medain"}, r"`medain` is not a known pruner. Did you mean `median`\?"),
        ({"options": {"n_startup": 3}}, "not a known option of the pruner `median`"),
        ({"pruner": "percentile", "options": {"percentile": 200.0}}, "the pruner `percentile` say"),
        ({"pruner": "percentile"}, "the pruner `percentile` says: .*percentile"),
        ({"pruner": f"{__name__}:no_pruner"}, "made 'not a pruner', which is no BasePruner"),
        ({"every": 3}, "`every` = 3: .* multiple of `interval` = 2"),
    ],
)
def test_what_no_pruner_takes_is_refused_with_its_arm(
    null_arm, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, ConfigError, UnknownNameError), match=message):
        null_arm("a", algorithm=Pruned(**{"num_trials": 4, "every": 2, **fields}), space=SPACE)


class TestPruned(AlgorithmContract):
    algorithm = Pruned(num_trials=12, every=4, options={"n_startup_trials": 3})


class TestFreePruned(AlgorithmContract):
    algorithm = Pruned(num_trials=12, every=4, options={"n_startup_trials": 3}, timing="free")
