"""Are hypers found under any division of data and weights as good for an ordinary net?

Every cell of the grids of `partition_sensitivity`, with a standard net retrained at what it found.
The number of chunks is a keyword: `--set chunks=4`.
"""

from typing import Any

from studies.comparison import Comparison
from studies.division import GRIDS
from tuneparts.core.errors import ConfigError
from tuneparts.data.config import Data
from tuneparts.methods.partitioned import Partitioned
from tuneparts.nets import DigitsCnn, MnistCnn
from tuneparts.search.arm import Arm, Resources
from tuneparts.search.spec import Scale, Search

NOTES = """
Mlodozeniec et al. (2023, appendix F.2, Figures 7 and 8) retrain ordinary nets at the hypers that
each cell of their grids has found, two runs each, so that what the division costs the partitioned
net itself does not count. Cells are named by the positions of their proportions of data and of
weights in the grids of `partition_sensitivity`: `cell_0_2` has the first of data and the third of
weights. Their claim, that the division matters little but where late partitions have many weights
and little data, is judged by every cell against `cell_1_1`, which has equal shares, and by every
retrained net against that cell's, within a point.
"""


def search(scale: Scale, *, chunks: int = 3) -> Search:
    """Two arms for each cell.

    Args:
        scale: size of the question.
        chunks: 2, 3 or 4.
    """
    if chunks not in GRIDS:
        raise ConfigError(f"grids are there for {sorted(GRIDS)} chunks, but `chunks` is {chunks}.")
    steps = scale.pick(smoke=20, cpu=2400, paper=60_000)
    num = scale.pick(smoke=2, cpu=4, paper=20)
    setting = Comparison(
        shared={
            "steps": steps,
            "interval": steps // 5,
            "net": scale.pick(smoke=DigitsCnn(), cpu=DigitsCnn(), paper=MnistCnn()),
            "batch_size": scale.pick(smoke=20, cpu=50, paper=200),
            "optimiser": {"lr": scale.pick(smoke=0.006, cpu=0.006, paper=0.001)},
        },
        samples={"samples": num, "eval_samples": num},
        reach=None if scale is Scale.PAPER else 18.0,
        resources=Resources(gpus=scale.pick(smoke=0, cpu=0, paper=0.5)),
    )
    grid = GRIDS[chunks]
    cells = range(scale.pick(smoke=1, cpu=len(grid), paper=len(grid)))
    leaders = tuple(_cell(setting, grid, i, j) for i in cells for j in cells)
    return Search(
        name="partition_retrained",
        question="Are hypers found under any division as good for an ordinary net?",
        notes=NOTES,
        scale=scale,
        data=scale.pick(
            smoke=Data(name="digits", rotated=True, num_train=200),
            cpu=Data(name="digits", rotated=True),
            paper=Data(name="mnist", rotated=True),
        ),
        metric="val/accuracy",
        steps=steps,
        seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2, 3, 4), paper=(0, 1)),
        arms=(*leaders, *setting.retrained([arm.name for arm in leaders])),
        figures=("scores", "hypers"),
    )


def _cell(setting: Comparison, grid: Any, data: int, weights: int) -> Arm:
    config = Partitioned(
        **setting.shared,
        hypers=setting.learnt(),
        proportions=grid[data],
        parameter_proportions=grid[weights],
    )
    return Arm(
        name=f"cell_{data}_{weights}",
        config=setting.at_rate(config),
        resources=setting.resources,
    )
