"""Which finds the lowest point of Branin's function sooner: random search or TPE?

An objective of one's own: any function of a dict becomes an arm, and needs no data. Run it with
`python examples/own_objective.py`; it takes about a minute and prints what was found.
"""

import math

import tuneparts
from tuneparts import Arm, Scale, Search, Uniform
from tuneparts.methods.objective import Objective
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.algorithms.sampler import Tpe


def branin(config: dict[str, float]) -> float:
    """Its three lowest points have the value 0.3979."""
    x, y = config["x"], config["y"]
    valley = (y - 5.1 * x**2 / (4 * math.pi**2) + 5 * x / math.pi - 6) ** 2
    return valley + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def search(scale: Scale) -> Search:
    """Both algorithms, with the same number of trials."""
    config = Objective(function=branin, reports={"val/branin": "min"})
    space = {"params.x": Uniform(low=-5, high=10), "params.y": Uniform(low=0, high=15)}
    num_trials = scale.pick(smoke=12, cpu=30, paper=200)
    algorithms = {"random": RandomSearch(num_trials=num_trials), "tpe": Tpe(num_trials=num_trials)}
    return Search(
        name="own_objective",
        question="Which finds the lowest point of Branin's function sooner: random search or TPE?",
        scale=scale,
        metric="val/branin",
        steps=1,
        seeds=scale.pick(smoke=(0, 1), cpu=tuple(range(5)), paper=tuple(range(20))),
        arms=tuple(
            Arm(name=name, config=config, algorithm=algorithm, space=space)
            for name, algorithm in algorithms.items()
        ),
        figures=("accuracy:val/branin", "best_of_n:val/branin"),
    )


if __name__ == "__main__":
    results = tuneparts.run(search(Scale.CPU), workers=1)
    print(results.answer)
    print(results.selected[["arm", "seed", "param.params.x", "param.params.y", "val/branin"]])
