"""Does one partitioned run find the augmentation, and does its retrained net beat random search?

Handwritten digits, each turned by its own angle over the full circle: a net that knows this
needs fewer examples. The small version of `random_vs_partitioned`, on data that is always there.
"""

import math

from tuneparts.data.config import Data
from tuneparts.methods.baselines.config import Standard
from tuneparts.methods.partitioned import Partitioned
from tuneparts.nets import DigitsCnn
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.arm import Arm
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Scale, Search

NOTES = """
Mlodozeniec et al. (2023, Figure 9) train 200 nets on rotated MNIST at random augmentation ranges
and compare with single partitioned runs. Here: 1,297 scikit-learn digits of 8 x 8 pixels, a net of
13,706 parameters, 4 augmentation samples in training, ranges that a practitioner would choose (the
paper's go up to 3), and the hyper learning rate scaled with the shorter run. Random search trains
on 997 digits and selects on 300; the partitioned and the retrained nets use all 1,297. Outside
`paper` scale random search has two trials, which cost as much as one partitioned run and its
retrained net: the contrast is one at equal cost. More trials would find more.
"""


def search(scale: Scale) -> Search:
    """No augmentation, random search over it, learning it in one run, and retrained nets."""
    steps = scale.pick(smoke=20, cpu=2400, paper=20_000)
    shared = {
        "steps": steps,
        "interval": scale.pick(smoke=5, cpu=300, paper=2000),
        "net": DigitsCnn(),
        "batch_size": 50,
        "optimiser": {"lr": 0.006},
    }
    samples = {"samples": 4, "eval_samples": 4}
    plain = Standard(**shared, train_on="all")
    augmented = Standard(**shared, hypers={"affine": {}, **samples})
    retrained = augmented.replaced({"train_on": "all"})
    ranges = {"rotation": math.pi} | dict.fromkeys(
        ["translate_x", "translate_y", "scale_x", "scale_y", "shear"], 0.5
    )
    return Search(
        name="rotated_digits",
        question="Does one partitioned run find the augmentation, and does its retrained net beat "
        "random search?",
        notes=NOTES,
        scale=scale,
        data=Data(name="digits", rotated=True, num_val=300),
        metric="val/accuracy",
        compare=("partitioned_retrained", "random"),
        references=("none",),
        answer="found",
        found={"hyper/rotation": math.pi},
        steps=steps,
        seeds=scale.pick(smoke=(0,), cpu=tuple(range(10, 18)), paper=(0, 1, 2, 3, 4)),
        arms=(
            Arm(
                name="partitioned",
                config=Partitioned(**shared, hypers={"affine": {}, **samples}, hyper_lr=36 / steps),
            ),
            Arm(
                name="random",
                config=augmented,
                algorithm=RandomSearch(num_trials=scale.pick(smoke=2, cpu=2, paper=200)),
                packed=2,
                space={
                    f"hypers.affine.{name}": Uniform(low=0.0, high=high)
                    for name, high in ranges.items()
                },
            ),
            Arm(name="none", config=plain),
            Arm(name="partitioned_retrained", config=retrained, follows="partitioned"),
        ),
        score_test_always=True,
        figures=("accuracy", "hypers", "samples", "projections", "best_of_n", "calibration"),
    )
