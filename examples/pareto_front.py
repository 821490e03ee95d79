"""How much accuracy does each weight of a small net buy?

Your own space and objectives: nets of two kinds with dimensions that only their kind has, a
point that is tried first, a constraint, and accuracy weighed against size. Run it with
`python examples/pareto_front.py`; it takes about two minutes and prints the front that was found.
"""

import tuneparts as tp

LIMIT = 20_000
"""Weights that a net may have to be selected."""


def is_worth_a_try(config: tp.methods.DeepEnsemble) -> bool:
    """A narrow net does not learn at a small rate in so few steps."""
    (net,) = config.members
    width = net.hidden if net.name == "digits_cnn" else net.widths[0]
    return width * config.optimiser.lr > 0.05


def search(scale: tp.Scale) -> tp.Search:
    """Random search and NSGA-II over the same space."""
    trials = scale.pick(smoke=4, cpu=16, paper=100)
    net = tp.Choice(
        {
            "cnn": ({"name": "digits_cnn", "hidden": tp.Int(8, 128, log=True)},),
            "mlp": ({"name": "mlp", "widths": (tp.Int(16, 256, log=True),)},),
        }
    )
    shared = {
        "config": tp.methods.DeepEnsemble(members=("digits_cnn",)),
        "space": {"members": net, "lr": tp.Uniform(1e-3, 3e-2, log=True)},
        "points": [{"members": [{"name": "digits_cnn", "hidden": 64}], "lr": 0.006}],
        "constraint": is_worth_a_try,
    }
    population = {"population_size": max(2, trials // 4)}
    nsgaii = tp.Optuna(sampler="nsgaii", num_trials=trials, options=population)
    return tp.Search(
        data=tp.data.Digits(num_val=300),
        objectives=("val/accuracy", "size/parameters"),
        selection=tp.Within(limits={"size/parameters": LIMIT}),
        steps=scale.pick(smoke=10, cpu=150, paper=2000),
        seeds=scale.pick(smoke=1, cpu=2, paper=5),
        arms={
            "random": tp.Arm(algorithm=tp.RandomSearch(trials), **shared),
            "nsgaii": tp.Arm(algorithm=nsgaii, **shared),
        },
        figures=("scores",),
    )


if __name__ == "__main__":
    results = tp.run(__file__, workers=1)
    print(results.answer)
    print(results.front.to_string(index=False))
