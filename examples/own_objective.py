"""Which finds the lowest point of Branin's function sooner: random search or TPE?

An objective of one's own: any function of a dict becomes an arm, and needs no data. Run it with
`python examples/own_objective.py`; it takes seconds and prints what each arm found.
"""

import math
import tempfile
from pathlib import Path

from tuneparts import api, executors
from tuneparts.objective import ObjectiveConfig
from tuneparts.reports import rendering
from tuneparts.search import runs
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Arm, RandomSearch, Scale, Search, Tpe


def branin(config: dict[str, float]) -> float:
    """Its three lowest points have the value 0.3979."""
    x, y = config["x"], config["y"]
    valley = (y - 5.1 * x**2 / (4 * math.pi**2) + 5 * x / math.pi - 6) ** 2
    return valley + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def search(scale: Scale) -> Search:
    """Both algorithms, with the same number of trials."""
    config = ObjectiveConfig(function=branin, reports={"val/branin": "min"})
    space = {"params.x": Uniform(low=-5, high=10), "params.y": Uniform(low=0, high=15)}
    num_trials = scale.pick(smoke=12, cpu=60, paper=200)
    algorithms = {"random": RandomSearch(num_trials=num_trials), "tpe": Tpe(num_trials=num_trials)}
    return Search(
        name="own_objective",
        question="Which finds the lowest point of Branin's function sooner: random search or TPE?",
        scale=scale,
        metric="val/branin",
        passes=1,
        seeds=scale.pick(smoke=(0, 1), cpu=tuple(range(5)), paper=tuple(range(20))),
        arms=tuple(
            Arm(name=name, config=config, algorithm=algorithm, space=space)
            for name, algorithm in algorithms.items()
        ),
        figures=("accuracy:val/branin", "best_of_n:val/branin"),
    )


def main(results: Path, scale: Scale) -> api.Results:
    """Run the search in this process."""
    asked = search(scale)
    facts = {"command": "", "commit": "", "versions": {}, "storage": None}
    run = runs.create(results, asked, **facts)
    executors.execute(asked, folder=run.folder, executor="local", workers=1)
    return api.Results(run)


if __name__ == "__main__":
    found = main(Path(tempfile.mkdtemp()), Scale.CPU)
    print(found.answer)
    print(rendering.to_markdown(found.data.tables))
