"""Are hyperparameters found under any division of data and weights as good for an ordinary net?

Mlodozeniec et al. (2023, appendix F.2, Figures 7 and 8) retrain ordinary nets at what each cell of
their grids has found, two runs each, so that what the division costs the partitioned net itself
does not count. `cell_0_2` has the first proportions of data and the third of weights in the grids
of `partition_sensitivity`; `--set chunks=4` takes those of four chunks. Their claim, that the
division matters little but where late partitions have many weights and little data, is judged by
every cell against `cell_1_1`, which has equal shares, and by every retrained net against that
cell's, within a point.
"""

import tuneparts as tp
from studies import after_question, division, on_gpus
from studies.comparison import Comparison


def search(scale: tp.Scale, *, chunks: int = 3) -> tp.Search:
    """Two arms for each cell of 2, 3 or 4 chunks."""
    if chunks not in division.GRIDS:
        raise tp.ConfigError(f"`chunks` = {chunks}: there are grids for {list(division.GRIDS)}.")
    num = scale.pick(smoke=2, cpu=4, paper=20)
    setting = Comparison(
        division.setting(scale),
        {"samples": num, "eval_samples": num},
        reach=None if scale is tp.Scale.PAPER else 18.0,
    )
    grid = division.GRIDS[chunks][: scale.pick(smoke=1, cpu=3, paper=3)]
    cells = {
        f"cell_{i}_{j}": setting.at_rate(
            tp.Partitioned.published(proportions=data, parameter_proportions=weights)
        )
        for i, data in enumerate(grid)
        for j, weights in enumerate(grid)
    }
    return tp.Search(
        **setting.shared,
        hypers=setting.hypers,
        notes=after_question(__doc__),
        metric="val/accuracy",
        seeds=scale.pick(smoke=1, cpu=5, paper=2),
        arms=on_gpus(scale, 0.5, {**cells, **setting.retrained(cells)}),
        figures=("scores", "hypers"),
    )
