"""With its own settings tuned at equal cost, which way to the hypers is best on rotated MNIST?

As `benchmark_digits`, on 5,000 images that are each turned over the full circle.
"""

import math

from studies import mnist
from studies.tuning import Tuned, affine_space, affine_starts
from tuneparts.hypers import Affine
from tuneparts.search.spec import Scale, Search

check = mnist.check
NOTES = """
At `cpu` scale 5,000 training and 1,000 validation images of 14 x 14 pixels, 2,000 test images, a
net of 15,114 weights, batches of 50, 2 augmentation samples in training and 8 in scoring.
"""


def search(scale: Scale) -> Search:
    """Learners, searching arms and references, each with its tuning."""
    steps = scale.pick(smoke=16, cpu=1200, paper=60_000)
    samples = mnist.samples(scale, cpu=2)
    setting = Tuned(
        shared={
            "steps": steps,
            "interval": steps // 4,
            "net": mnist.net(scale),
            "batch_size": 50,
            "optimiser": {"lr": 0.003},
        },
        learnt={"affine": dict.fromkeys(Affine.NAMES, 0.3), **samples},
        starts=affine_starts(Affine.NAMES),
        space=affine_space(Affine.NAMES, 0.5),
        paper_space=affine_space(Affine.NAMES, 3.0),
    )
    true = {"affine": {**dict.fromkeys(Affine.NAMES, 0.0), "rotation": math.pi}, **samples}
    return setting.search(
        name="benchmark_mnist_rotated",
        notes=NOTES,
        scale=scale,
        data=mnist.rotated(scale),
        references={"none": None, "oracle": true},
        found={"hyper/rotation": math.pi},
    )
