"""Which search algorithm finds a good config of a small net in the fewest steps?

Every algorithm has the same space on rotated digits (the optimiser with what belongs to it, the
batch size and an augmentation range), the same net of 13,706 weights and the same steps for a whole
trial; how many trials each runs is chosen so that their steps are about equal, except for the grid,
which has as many as it has combinations, and for a population, whose members all train to the end.
Population-based training varies rotation alone, because a state trained under one optimiser or
batch size is of no use under another. All choose by accuracy on 300 digits.
"""

import math

import tuneparts as tp
from studies import after_question


def search(scale: tp.Scale) -> tp.Search:
    steps = scale.pick(smoke=16, cpu=480, paper=8000)
    trials = scale.pick(smoke=4, cpu=16, paper=64)
    least = steps // scale.pick(smoke=4, cpu=4, paper=16)
    startup, halved = trials // 3 + 1, {"min_steps": least, "reduction": 2}
    net, rotation = tp.Standard(), tp.Uniform(0.0, math.pi)
    sgd = {"lr": tp.Uniform(1e-3, 1.0, log=True), "momentum": tp.Uniform(0.0, 0.9, step=0.1)}
    adam = {"lr": tp.LogNormal(mean=math.log(5e-3), std=1.0)}
    space = {
        "optimiser": tp.Choice({"sgd": {"kind": "sgd", **sgd}, "adam": {"kind": "adam", **adam}}),
        "batch_size": tp.Int(16, 128, log=True),
        "rotation": rotation,
    }
    grid = {
        "optimiser": tp.Choice(
            {
                "sgd": {"kind": "sgd", "lr": tp.Choice([0.02, 0.2]), "momentum": 0.9},
                "adam": {"kind": "adam", "lr": tp.Choice([0.002, 0.01])},
            }
        ),
        "rotation": tp.Choice([0.0, math.pi]),
    }
    algorithms: dict[str, tp.Algorithm] = {
        "random": tp.RandomSearch(trials),
        "tpe": tp.Tpe(num_trials=trials, num_startup=startup),
        "gp": tp.Optuna(num_trials=trials, sampler="gp", options={"n_startup_trials": startup}),
        "cmaes": tp.Optuna(num_trials=trials, sampler="cmaes"),
        "qmc": tp.Optuna(num_trials=trials, sampler="qmc"),
        "nsgaii": tp.Optuna(
            num_trials=trials,
            sampler="nsgaii",
            options={"population_size": max(2, trials // 4)},
        ),
        "halving": tp.SuccessiveHalving(num_trials=2 * trials, **halved),
        "hyperband": tp.Hyperband(num_trials=2 * trials, **halved),
        "asha": tp.Asha(num_trials=2 * trials, **halved),
    }
    first = {"optimiser": {"kind": "adam", "lr": 0.006}, "batch_size": 50, "rotation": 0.3}
    population = tp.Pbt(population=scale.pick(smoke=4, cpu=8, paper=16), num_rounds=4)
    return tp.Search(
        notes=after_question(__doc__),
        data=tp.data.Digits(rotated=True, num_val=300),
        net=tp.nets.DigitsCnn(),
        hypers={"affine": {}, "samples": 1, "eval_samples": 2},
        steps=steps,
        interval=least,
        batch_size=50,
        optimiser=tp.Adam(lr=0.006),
        seeds=scale.pick(smoke=1, cpu=3, paper=5),
        arms={
            **{
                name: tp.Arm(config=net, algorithm=algorithm, space=space, points=(first,))
                for name, algorithm in algorithms.items()
            },
            "grid": net.searched_by(tp.GridSearch(), grid),
            "pbt": net.searched_by(population, rotation=rotation),
        },
        figures=("scores", "accuracy:val/accuracy", "schedule"),
    )
