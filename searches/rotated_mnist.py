"""Does one partitioned run find that MNIST was rotated?

The quickstart's question on MNIST images, each turned by its own angle over the full circle.
"""

import math

from studies import mnist
from tuneparts.methods.baselines.config import Standard
from tuneparts.methods.partitioned import Partitioned
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.arm import Arm, Resources
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Scale, Search

check = mnist.check
NOTES = """
Mlodozeniec et al. (2023, sections G and I.4) train the CNN of their Table 9 on all 60,000 rotated
images with 20 augmentation samples, batches of 200, Adam at 1e-3 for weights and hypers, chunks of
80, 10 and 10 per cent; the number of iterations is not stated (`paper` scale: 30,000, a choice). At
`cpu` scale: 5,000 training and 1,000 validation images of 14 x 14 pixels, a net of 15,114 weights,
batches of 100, 4 samples, 2,000 iterations, and the hyper learning rate scaled so that rate times
steps stays near 20. Random search draws from ranges that a practitioner would choose; the
paper's go up to 3.
"""


def search(scale: Scale) -> Search:
    """No augmentation, random search over it, one partitioned run, and a retrained net."""
    steps = scale.pick(smoke=20, cpu=4000, paper=60_000)
    shared = {
        "steps": steps,
        "interval": steps // 10,
        "net": mnist.net(scale),
        "batch_size": scale.pick(smoke=20, cpu=100, paper=200),
        "optimiser": {"lr": scale.pick(smoke=3e-3, cpu=3e-3, paper=1e-3)},
    }
    samples = mnist.samples(scale)
    augmented = Standard(**shared, hypers={"affine": {}, **samples})
    resources = Resources(gpus=scale.pick(smoke=0, cpu=0, paper=0.5))
    ranges = {"rotation": math.pi} | dict.fromkeys(
        ["translate_x", "translate_y", "scale_x", "scale_y", "shear"], 0.5
    )
    return Search(
        name="rotated_mnist",
        question="Does one partitioned run find that MNIST was rotated?",
        notes=NOTES,
        scale=scale,
        data=mnist.rotated(scale),
        metric="val/accuracy",
        compare=("partitioned", "random"),
        references=("none",),
        answer="found",
        found={"hyper/rotation": math.pi},
        steps=steps,
        seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2), paper=(0, 1, 2)),
        arms=(
            Arm(
                name="partitioned",
                config=Partitioned(
                    **shared,
                    hypers={"affine": {}, **samples},
                    hyper_lr=scale.pick(smoke=40 / steps, cpu=40 / steps, paper=1e-3),
                ),
                resources=resources,
            ),
            Arm(
                name="random",
                config=augmented,
                algorithm=RandomSearch(num_trials=scale.pick(smoke=2, cpu=4, paper=200)),
                space={
                    f"hypers.affine.{name}": Uniform(low=0.0, high=high)
                    for name, high in ranges.items()
                },
                resources=resources,
            ),
            Arm(
                name="none",
                config=Standard(**shared, train_on="all"),
                resources=resources,
            ),
            Arm(
                name="partitioned_retrained",
                config=augmented.replaced({"train_on": "all"}),
                follows="partitioned",
                resources=resources,
            ),
        ),
        figures=("scores", "accuracy", "hypers", "samples", "projections", "best_of_n"),
    )
