"""How much accuracy does each weight of a small net buy?

A space and objectives of one's own: nets of two kinds with dimensions that only their kind has, a
point that is tried first, a constraint, and accuracy weighed against size. Run it with
`python examples/pareto_front.py`; it takes about two minutes and prints the front that was found.
"""

import tuneparts
from tuneparts import Arm, Choice, Data, Int, RandomSearch, Scale, Search, Uniform
from tuneparts.core.selection import Within
from tuneparts.methods.ensembles.config import DeepEnsemble
from tuneparts.search.algorithms.sampler import Optuna

LIMIT = 20_000
"""Weights that a net may have to be selected."""


def is_worth_a_try(config: DeepEnsemble) -> bool:
    """A narrow net does not learn at a small rate in so few steps."""
    (net,) = config.members
    width = net.hidden if net.name == "digits_cnn" else net.widths[0]
    return width * config.optimiser.lr > 0.05


def search(scale: Scale) -> Search:
    """Random search and NSGA-II over the same space."""
    steps = scale.pick(smoke=10, cpu=150, paper=2000)
    trials = scale.pick(smoke=4, cpu=16, paper=100)
    config = DeepEnsemble(steps=steps, interval=steps // 2, members=("digits_cnn",))
    net = Choice(
        options={
            "cnn": ({"name": "digits_cnn", "hidden": Int(low=8, high=128, log=True)},),
            "mlp": ({"name": "mlp", "widths": (Int(low=16, high=256, log=True),)},),
        }
    )
    space = {"members": net, "optimiser.lr": Uniform(low=1e-3, high=3e-2, log=True)}
    known = {"members": [{"name": "digits_cnn", "hidden": 64}], "optimiser.lr": 0.006}
    algorithms = {
        "random": RandomSearch(num_trials=trials),
        "nsgaii": Optuna(
            sampler="nsgaii", num_trials=trials, options={"population_size": max(2, trials // 4)}
        ),
    }
    return Search(
        name="pareto_front",
        question="How much accuracy does each weight of a small net buy?",
        scale=scale,
        data=Data(name="digits", num_val=300),
        objectives=("val/accuracy", "size/parameters"),
        selection=Within(limits={"size/parameters": LIMIT}),
        steps=steps,
        seeds=scale.pick(smoke=(0,), cpu=(0, 1), paper=(0, 1, 2, 3, 4)),
        arms=tuple(
            Arm(
                name=name,
                config=config,
                algorithm=algorithm,
                space=space,
                points=(known,),
                constraint=is_worth_a_try,
            )
            for name, algorithm in algorithms.items()
        ),
        figures=("scores",),
    )


if __name__ == "__main__":
    results = tuneparts.run(search(Scale.CPU), workers=1)
    print(results.answer)
    print(results.front.to_string(index=False))
