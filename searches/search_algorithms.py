"""Which search algorithm finds a good config of a small net in the fewest steps?

Every search algorithm over one space on rotated digits: the optimiser with what belongs to it,
the batch size and an augmentation range.
"""

import math

from tuneparts.data.config import Data
from tuneparts.methods.baselines.config import Standard
from tuneparts.nets import DigitsCnn
from tuneparts.search.algorithms.base import Algorithm, GridSearch, RandomSearch
from tuneparts.search.algorithms.halving import Asha, Hyperband, SuccessiveHalving
from tuneparts.search.algorithms.pbt import Pbt
from tuneparts.search.algorithms.sampler import Optuna, Tpe
from tuneparts.search.arm import Arm
from tuneparts.search.space import Choice, Dimension, Int, LogNormal, Uniform
from tuneparts.search.spec import Scale, Search

NOTES = """
Every algorithm has the same space, the same net of 13,706 weights and the same steps for a whole
trial; how many trials each runs is chosen so that their steps are about equal, except for the
grid, which has as many as it has combinations, and for a population, whose members all train to
the end. Population-based training varies rotation alone, because a state trained under one
optimiser or batch size is of no use under another. All choose by accuracy on 300 digits.
"""
ROTATION = "hypers.affine.rotation"


def space() -> dict[str, Dimension]:
    """SGD with a momentum or Adam, at learning rates of their own; batch size; augmentation."""
    return {
        "optimiser": Choice(
            options={
                "sgd": {
                    "kind": "sgd",
                    "lr": Uniform(low=1e-3, high=1.0, log=True),
                    "momentum": Uniform(low=0.0, high=0.9, step=0.1),
                },
                "adam": {"kind": "adam", "lr": LogNormal(mean=math.log(5e-3), std=1.0)},
            }
        ),
        "batch_size": Int(low=16, high=128, log=True),
        ROTATION: Uniform(low=0.0, high=math.pi),
    }


def grid() -> dict[str, Dimension]:
    """A coarse grid over the same space."""
    return {
        "optimiser": Choice(
            options={
                "sgd": {"kind": "sgd", "lr": Choice(options=(0.02, 0.2)), "momentum": 0.9},
                "adam": {"kind": "adam", "lr": Choice(options=(0.002, 0.01))},
            }
        ),
        ROTATION: Choice(options=(0.0, math.pi)),
    }


def algorithms(scale: Scale, steps: int) -> dict[str, Algorithm]:
    """Name of an arm -> its algorithm; about as many steps for each."""
    trials = scale.pick(smoke=4, cpu=16, paper=64)
    many, least = 2 * trials, steps // scale.pick(smoke=4, cpu=4, paper=16)
    startup = {"n_startup_trials": trials // 3 + 1}
    return {
        "random": RandomSearch(num_trials=trials),
        "tpe": Tpe(num_trials=trials, num_startup=trials // 3 + 1),
        "gp": Optuna(sampler="gp", num_trials=trials, options=startup),
        "cmaes": Optuna(sampler="cmaes", num_trials=trials),
        "qmc": Optuna(sampler="qmc", num_trials=trials),
        "nsgaii": Optuna(
            sampler="nsgaii", num_trials=trials, options={"population_size": max(2, trials // 4)}
        ),
        "halving": SuccessiveHalving(num_trials=many, min_steps=least, reduction=2),
        "hyperband": Hyperband(num_trials=many, min_steps=least, reduction=2),
        "asha": Asha(num_trials=many, min_steps=least, reduction=2),
    }


def search(scale: Scale) -> Search:
    """Every algorithm on the same space, and a grid and a population on parts of it."""
    steps = scale.pick(smoke=16, cpu=480, paper=8000)
    config = Standard(
        steps=steps,
        interval=steps // scale.pick(smoke=4, cpu=4, paper=16),
        net=DigitsCnn(),
        batch_size=50,
        optimiser={"lr": 0.006},
        hypers={"affine": {}, "samples": 1, "eval_samples": 2},
    )
    first = ({"optimiser": {"kind": "adam", "lr": 0.006}, "batch_size": 50, ROTATION: 0.3},)
    searched = [
        Arm(name=name, config=config, algorithm=algorithm, space=space(), points=first)
        for name, algorithm in algorithms(scale, steps).items()
    ]
    population = Pbt(population=scale.pick(smoke=4, cpu=8, paper=16), num_rounds=4)
    return Search(
        name="search_algorithms",
        question="Which search algorithm finds a good config of a small net in the fewest steps?",
        notes=NOTES,
        scale=scale,
        data=Data(name="digits", rotated=True, num_val=300),
        metric="val/accuracy",
        steps=steps,
        seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2), paper=(0, 1, 2, 3, 4)),
        arms=(
            *searched,
            Arm(name="grid", config=config, algorithm=GridSearch(), space=grid()),
            Arm(
                name="pbt",
                config=config,
                algorithm=population,
                space={ROTATION: space()[ROTATION]},
            ),
        ),
        figures=("scores", "accuracy:val/accuracy", "schedule"),
    )
