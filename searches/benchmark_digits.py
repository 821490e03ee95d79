"""Tuned at equal cost, which way to the hyperparameters is best on rotated digits?

Every method tunes what it leaves open by eight trials on validation data, then trains once under a
fresh seed. A task of the benchmark: `tuneparts ranks benchmark_digits benchmark_mnist_rotated ...`.

1,297 scikit-learn digits of 8 x 8 pixels, each turned over the full circle, of which 300 select; a
net of 13,706 weights; 4 augmentation samples in training and 8 in scoring. The paper's ranges go up
to 3 (Mlodozeniec et al. 2023, appendix G), the sensible ones to 0.5.
"""

import math

import tuneparts as tp
from studies import digits
from studies.comparison import rotation_only
from studies.tuning import Tuned, affine


def search(scale: tp.Scale) -> tp.Search:
    steps = scale.pick(smoke=16, cpu=1600, paper=20_000)
    samples = {"samples": scale.pick(smoke=1, cpu=4, paper=20), "eval_samples": 8}
    shared = {**digits.small(), "steps": steps, "interval": steps // 4}
    return Tuned(shared, **affine(samples), packed=8).search(
        __doc__,
        scale=scale,
        references={"none": [], "oracle": rotation_only(samples)},
        found={"hyper/rotation": math.pi},
    )
