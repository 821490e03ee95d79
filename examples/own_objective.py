"""Which finds the lowest point of Branin's function sooner: random search or TPE?

Your own objective: any function of a dict becomes an arm, and needs no data. Run it with
`python examples/own_objective.py`; it takes about a minute and prints what was found.
"""

import math

import tuneparts as tp


def branin(config: dict[str, float]) -> float:
    """Its three lowest points have the value 0.3979."""
    x, y = config["x"], config["y"]
    valley = (y - 5.1 * x**2 / (4 * math.pi**2) + 5 * x / math.pi - 6) ** 2
    return valley + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def search(scale: tp.Scale) -> tp.Search:
    """Both algorithms, with the same number of trials."""
    objective = tp.Objective(branin, reports={"val/branin": "min"})
    space = {"x": tp.Uniform(-5, 10), "y": tp.Uniform(0, 15)}
    trials = scale.pick(smoke=12, cpu=30, paper=200)
    return tp.Search(
        seeds=scale.pick(smoke=2, cpu=5, paper=20),
        arms={
            "random": objective.searched_by(tp.RandomSearch(trials), space),
            "tpe": objective.searched_by(tp.Tpe(trials), space),
        },
        figures=("accuracy:val/branin", "best_of_n:val/branin"),
    )


if __name__ == "__main__":
    results = tp.run(__file__, workers=1)
    print(results.answer)
    print(results.selected[["arm", "seed", "param.params.x", "param.params.y", "val/branin"]])
