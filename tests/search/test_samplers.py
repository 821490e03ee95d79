"""Samplers of Optuna by name: what they are asked and told, and what is refused before that."""

import warnings
from typing import Any

import optuna
import pytest

from tests.search.test_algorithms import ACCURACY, NLL, batches, scrambled, values, with_failures
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.core.seeding import derive
from tuneparts.search.algorithms.sampler import Optuna, Tpe
from tuneparts.search.arm import Arm
from tuneparts.search.space import Choice, Uniform
from tuneparts.testing import AlgorithmContract

SPACE = {"x": Uniform(low=0.1, high=1.0, log=True), "seconds": Choice(options=(0.0, 0.5, 2.0))}
NUMBERS = {"x": Uniform(low=0.1, high=1.0, log=True), "seconds": Uniform(low=0.0, high=2.0)}


def half_random(*, fraction: float = 0.5, seed: int = 0) -> Any:
    """A sampler of one's own."""
    assert 0 < fraction <= 1
    return optuna.samplers.RandomSampler(seed=seed)


NOT_A_MAKER = 3


def no_sampler() -> str:
    return "not a sampler"


@pytest.mark.parametrize(("metric", "direction"), [(ACCURACY, "maximize"), (NLL, "minimize")])
def test_trial_n_is_asked_for_once_those_before_its_window_are_told(
    null_arm, metric, direction: str
) -> None:
    algorithm = Tpe(num_trials=13, window=3, num_startup=4)
    arm = null_arm("tpe", algorithm=algorithm, space=SPACE)
    found = batches(arm, with_failures, seed=5, metric=metric)
    asked = [one for batch in found for one in batch.run]
    assert [len(batch.run) for batch in found] == [3] + [1] * 10
    assert [batch.awaits[0].index for batch in found[:-1]] == list(range(10))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = optuna.samplers.TPESampler(
            n_startup_trials=4,
            seed=derive(5, "tpe", "tpe") % 2**32,
            multivariate=True,
            constant_liar=True,
        )
    study = optuna.create_study(direction=direction, sampler=sampler)
    trials = []
    for number, one in enumerate(asked):
        if number >= 3:
            score = with_failures(asked[number - 3])
            failed = optuna.trial.TrialState.FAIL if score is None else None
            study.tell(trials[number - 3], score, state=failed)
        trials.append(study.ask({path: dim.distribution() for path, dim in SPACE.items()}))
        assert values(one) == trials[-1].params


def test_tpe_is_the_same_by_either_name(null_arm) -> None:
    named = Optuna(sampler="tpe", num_trials=9, window=2, options={"n_startup_trials": 4})
    tpe = Tpe(num_trials=9, window=2, num_startup=4)
    one, other = (null_arm("arm", algorithm=a, space=SPACE) for a in (named, tpe))
    assert batches(one, scrambled) == batches(other, scrambled)


@pytest.mark.parametrize("sampler", ["random", "cmaes", "qmc", "nsgaii", "nsgaiii"])
def test_every_sampler_runs_and_seeds_differ(null_arm, sampler: str) -> None:
    algorithm = Optuna(sampler=sampler, num_trials=12, window=4)
    arm = null_arm("arm", algorithm=algorithm, space=NUMBERS)
    found = [batches(arm, with_failures, seed=seed) for seed in (0, 0, 1)]
    assert found[0] == found[1]
    drawn = [[values(one) for batch in each for one in batch.run] for each in found]
    assert drawn[0] != drawn[2]
    assert len({tuple(each.values()) for each in drawn[0]}) == 12


class TestOptunaGp(AlgorithmContract):
    algorithm = Optuna(sampler="gp", num_trials=4, window=2, options={"n_startup_trials": 2})
    scores = (scrambled,)
    space = {"x": Uniform(low=0.1, high=1.0)}  # noqa: RUF012


class TestOptunaCmaEs(AlgorithmContract):
    algorithm = Optuna(sampler="cmaes", num_trials=12, window=3, options={"popsize": 4})
    space = NUMBERS


class TestOptunaQmc(AlgorithmContract):
    algorithm = Optuna(sampler="qmc", num_trials=9, window=3)


class TestOptunaNsgaii(AlgorithmContract):
    algorithm = Optuna(sampler="nsgaii", num_trials=12, window=3, options={"population_size": 4})


class TestOptunaOwn(AlgorithmContract):
    algorithm = Optuna(sampler=f"{__name__}:half_random", num_trials=6, options={"fraction": 0.2})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sampler": "gpp"}, r"`gpp` is not a known sampler. Did you mean `gp`\? Known: cmaes"),
        (
            {"sampler": "gp", "options": {"n_startup": 3}},
            r"the sampler `gp` says: .* unexpected keyword argument 'n_startup'",
        ),
        ({"sampler": "tpe", "options": {"seed": 3}}, "`tpe` gets the seed of the search"),
        ({"sampler": f"{__name__}:NOT_A_MAKER"}, "NOT_A_MAKER` says: 3 is not a callable"),
        ({"sampler": "qmc", "options": {"qmc_type": "sobbol"}}, "the sampler `qmc` says: .*sobbol"),
        ({"sampler": f"{__name__}:no_sampler"}, "made 'not a sampler', which is no BaseSampler"),
    ],
)
def test_what_no_sampler_takes_is_refused(
    null_search, null_arm, fields: dict[str, Any], message: str
) -> None:
    arm = null_arm("a", algorithm=Optuna(num_trials=4, **fields), space=SPACE)
    with pytest.raises((ValueError, ConfigError, UnknownNameError), match=message):
        null_search(arm)


def test_the_width_of_the_machine_becomes_a_field(null_arm) -> None:
    assert Tpe(num_trials=99).for_width(5) == Tpe(num_trials=99, window=13)
    assert Tpe(num_trials=21).for_width(5).window == 7
    assert Tpe(num_trials=4).for_width(5).window == 5
    assert Tpe(num_trials=4, timing="asynchronous").for_width(5).window == 5
    given = Tpe(num_trials=4, window=3)
    assert given.for_width(5) == given
    arm = null_arm("a", algorithm=Optuna(num_trials=4, sampler="qmc"), space=SPACE)
    assert Arm.model_validate(arm.model_dump()) == arm
