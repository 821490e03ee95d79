"""At which hyper rate, and with how many hyper steps, is each method at its best?

Every method has the same grid of reaches (hyper rate times hyper steps), and those that can choose
how many updates they take per hyper step have it twice. All is judged on validation data.
"""

from studies import reach
from studies.comparison import LAPLACE, Comparison
from tuneparts.data.config import Data
from tuneparts.methods.baselines.config import (
    Augerino,
    Laplace,
    LastLayer,
    ValidationSet,
)
from tuneparts.methods.partitioned import Partitioned
from tuneparts.nets import DigitsCnn
from tuneparts.search.algorithms.base import GridSearch
from tuneparts.search.arm import Arm
from tuneparts.search.space import Choice
from tuneparts.search.spec import Scale, Search
from tuneparts.training.config import Method

NOTES = """
Mlodozeniec et al. (2023) print one hyper rate for their method, and other ones, from other papers,
for those that they compare with. A rate means nothing without the number of steps: on shorter runs
their product decides what can be found. Here every method trains on 997 rotated digits for as many
steps, and its reach of 6, 18, 54 or 120 is chosen by 300 validation digits. Arms that end in `_4`
take one hyper step after four updates. Settings found here are for other seeds and data.
"""


def search(scale: Scale) -> Search:
    """A grid of reaches for each method."""
    steps = scale.pick(smoke=40, cpu=2400, paper=20_000)
    comparison = Comparison(
        shared={
            "steps": steps,
            "interval": steps // 4,
            "net": DigitsCnn(),
            "batch_size": 50,
            "optimiser": {"lr": 0.006},
            "train_on": "train",
        },
        samples={"samples": scale.pick(smoke=2, cpu=4, paper=20), "eval_samples": 8},
    )
    learnt = {**comparison.shared, "hypers": comparison.learnt()}
    late = comparison.last_stage()
    configs: dict[str, Method] = {
        "partitioned": Partitioned(**learnt),
        "partitioned_4": Partitioned(**learnt, hyper_every=4),
        "validation": ValidationSet(**learnt),
        "validation_4": ValidationSet(**learnt, hyper_every=4),
        "validation_finetuned": ValidationSet(**learnt, finetune=late),
        "validation_finetuned_4": ValidationSet(**learnt, finetune=late, hyper_every=4),
        "augerino": Augerino(**learnt),
        "laplace": Laplace(**learnt, **LAPLACE),
        "last_layer": LastLayer(**learnt),
        "last_layer_4": LastLayer(**learnt, hyper_every=4),
    }
    reaches = scale.pick(
        smoke=(6.0, 18.0), cpu=(6.0, 18.0, 54.0, 120.0), paper=(6.0, 18.0, 54.0, 120.0)
    )
    return Search(
        name="hyper_rates",
        question="At which hyper rate, and with how many hyper steps, is each method at its best?",
        notes=NOTES,
        scale=scale,
        data=Data(name="digits", rotated=True, num_val=300),
        metric="val/accuracy",
        steps=steps,
        seeds=scale.pick(smoke=(0,), cpu=(0, 1), paper=(0, 1, 2)),
        arms=tuple(
            Arm(
                name=name,
                config=config,
                algorithm=GridSearch(),
                space={"hyper_lr": Choice(options=_rates(config, reaches))},
            )
            for name, config in configs.items()
        ),
        figures=("scores", "hypers", "projections"),
    )


def _rates(config: Method, reaches: tuple[float, ...]) -> tuple[float, ...]:
    """The rates at which the hypers of this method can travel so far."""
    return tuple(one / max(1, reach.hyper_steps(config)) for one in reaches)
