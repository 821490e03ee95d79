"""Tuned at equal cost, which way to the hyperparameters is best on rotated MNIST?

As `benchmark_digits`, on 5,000 images that are each turned over the full circle.

At `cpu` scale 5,000 training and 1,000 validation images of 14 x 14 pixels, 2,000 test images, a
net of 15,114 weights, batches of 50, 2 augmentation samples in training and 8 in scoring.
"""

import math

import tuneparts as tp
from studies import digits
from studies.comparison import rotation_only
from studies.tuning import Tuned, affine

check = digits.check


def search(scale: tp.Scale) -> tp.Search:
    steps, samples = scale.pick(smoke=16, cpu=1200, paper=60_000), digits.samples(scale, cpu=2)
    return Tuned(digits.tuned_mnist(scale, steps), **affine(samples)).search(
        __doc__,
        scale=scale,
        references={"none": [], "oracle": rotation_only(samples)},
        found={"hyper/rotation": math.pi},
    )
