"""How much does it matter how data and weights are dealt out?

The grids of data proportions against parameter proportions for two, three and four chunks.
"""

from studies.division import GRIDS
from tuneparts.data.config import Data
from tuneparts.methods.partitioned import Partitioned
from tuneparts.nets import DigitsCnn, MnistCnn
from tuneparts.search.algorithms.base import GridSearch
from tuneparts.search.arm import Arm, Resources
from tuneparts.search.space import Choice
from tuneparts.search.spec import Scale, Search

NOTES = """
Mlodozeniec et al. (2023, section F) train the CNN of their Table 9 on rotated MNIST for grids of
proportions with two runs each, and find results flat except where later chunks have many
parameters but little data. At `cpu` scale: rotated digits, a net of 13,706 parameters, 1,200
iterations, three proportions a side (the paper's grids are larger).
"""


def search(scale: Scale) -> Search:
    """One arm per number of chunks, a grid in each."""
    steps = scale.pick(smoke=20, cpu=2400, paper=60_000)
    config = Partitioned(
        steps=steps,
        interval=steps // 5,
        net=scale.pick(smoke=DigitsCnn(), cpu=DigitsCnn(), paper=MnistCnn()),
        batch_size=scale.pick(smoke=20, cpu=50, paper=200),
        optimiser={"lr": scale.pick(smoke=0.006, cpu=0.006, paper=0.001)},
        hypers={"affine": {}, "samples": scale.pick(smoke=2, cpu=4, paper=20)},
        hyper_lr=scale.pick(smoke=36 / steps, cpu=36 / steps, paper=1e-3),
    )
    data = scale.pick(
        smoke=Data(name="digits", rotated=True, num_train=200),
        cpu=Data(name="digits", rotated=True),
        paper=Data(name="mnist", rotated=True),
    )
    counts = scale.pick(smoke=(2,), cpu=(2, 3, 4), paper=(2, 3, 4))
    return Search(
        name="partition_sensitivity",
        question="How much does it matter how data and weights are dealt out?",
        notes=NOTES,
        scale=scale,
        data=data,
        metric="lml/per_example",
        steps=steps,
        seeds=scale.pick(smoke=(0,), cpu=(0, 1), paper=(0, 1)),
        arms=tuple(
            Arm(
                name=f"chunks_{count}",
                config=config.replaced({"proportions": GRIDS[count][0]}),
                algorithm=GridSearch(),
                space={
                    "proportions": Choice(options=GRIDS[count]),
                    "parameter_proportions": Choice(options=GRIDS[count]),
                },
                resources=Resources(gpus=scale.pick(smoke=0, cpu=0, paper=0.5)),
            )
            for count in counts
        ),
        figures=tuple(
            f"heat_map:param.proportions,param.parameter_proportions,{metric},chunks_{count}"
            for count in counts
            for metric in ("test/accuracy", "hyper/rotation")
        ),
    )
