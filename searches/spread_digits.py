"""Where does the spread of a score over replicates come from: data, initialisation or the search?

The arms of the quickstart, each with a twin for every source of randomness that varies alone, after
Bouthillier et al. (2021). `tuneparts report spread_digits --variance` splits the spread.
"""

import math

from tuneparts.augment.affine import lila
from tuneparts.baselines.standard import StandardConfig
from tuneparts.data.config import DataConfig
from tuneparts.models import DigitsCnn
from tuneparts.partition import PartitionedConfig
from tuneparts.search.crossing import by_source
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Arm, RandomSearch, Scale, Search

NOTES = """
Nets, data and settings of `rotated_digits`: 1,297 digits that are turned over the full circle, of
which random search holds 300 out; 500 others test. A twin holds what it does not vary at the first
seed, so what it shows is conditional on that; the sources need not add up.
"""


def search(scale: Scale) -> Search:
    """No augmentation, random search and partitioned training, each with its twins."""
    passes = scale.pick(smoke=20, cpu=2400, paper=20_000)
    shared = {
        "passes": passes,
        "interval": passes // 4,
        "net": DigitsCnn(),
        "batch_size": 50,
        "optimiser": {"lr": 0.006},
    }
    hypers = {"affine": {}, "samples": 4, "eval_samples": 4}
    ranges = {**dict.fromkeys(lila.NAMES, 0.5), "rotation": math.pi}
    arms = (
        Arm(name="none", config=StandardConfig(**shared, train_on="all")),
        Arm(
            name="random",
            config=StandardConfig(**shared, hypers=hypers),
            algorithm=RandomSearch(num_trials=2),
            packed=2,
            space={
                f"hypers.affine.{name}": Uniform(low=0.0, high=high)
                for name, high in ranges.items()
            },
        ),
        Arm(
            name="partitioned",
            config=PartitionedConfig(**shared, hypers=hypers, hyper_lr=36 / passes),
        ),
    )
    return Search(
        name="spread_digits",
        question="Where does the spread of a score over replicates come from: data, "
        "initialisation or the search?",
        notes=NOTES,
        scale=scale,
        data=DataConfig(name="digits", rotated=True, num_val=300),
        metric="val/accuracy",
        compare=("partitioned", "random"),
        references=("none",),
        passes=passes,
        seeds=scale.pick(smoke=(0, 1, 2), cpu=tuple(range(12)), paper=tuple(range(30))),
        arms=tuple(twin for arm in arms for twin in (arm, *by_source(arm))),
        figures=("scores",),
    )
