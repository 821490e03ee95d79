"""How much does it matter how data and weights are dealt out?

Mlodozeniec et al. (2023, section F) train the CNN of their Table 9 on rotated MNIST for grids of
data proportions against parameter proportions with two runs each, and find results flat except
where later chunks have many parameters but little data. At `cpu` scale: rotated digits, a net of
13,706 parameters, 1,200 iterations, three proportions a side (the paper's grids are larger).
"""

import tuneparts as tp
from studies import after_question, division, on_gpus


def search(scale: tp.Scale) -> tp.Search:
    arms = {
        f"chunks_{count}": division.partitioned(scale, proportions=grid[0]).searched_by(
            tp.GridSearch(),
            proportions=tp.Choice(grid),
            parameter_proportions=tp.Choice(grid),
        )
        for count, grid in division.GRIDS.items()
        if count in scale.pick(smoke=(2,), cpu=(2, 3, 4), paper=(2, 3, 4))
    }
    return tp.Search(
        **division.setting(scale),
        notes=after_question(__doc__),
        metric="lml/per_example",
        seeds=scale.pick(smoke=1, cpu=2, paper=2),
        arms=on_gpus(scale, 0.5, arms),
        figures=tuple(
            f"heat_map:param.proportions,param.parameter_proportions,{metric},{name}"
            for name in arms
            for metric in ("test/accuracy", "hyper/rotation")
        ),
    )
