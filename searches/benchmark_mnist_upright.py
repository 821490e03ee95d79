"""Tuned at equal cost, which way to the hyperparameters is best on upright MNIST?

As `benchmark_digits`, on 5,000 images as they are: what helps is small, and not known.

Setting of `benchmark_mnist_rotated`. There is no oracle: nobody knows the best augmentation of
digits as they are written.
"""

import tuneparts as tp
from studies import digits
from studies.tuning import Tuned, affine

check = digits.check


def search(scale: tp.Scale) -> tp.Search:
    steps, samples = scale.pick(smoke=16, cpu=600, paper=60_000), digits.samples(scale, cpu=2)
    shared = digits.tuned_mnist(scale, steps, rotated=False)
    return Tuned(shared, **affine(samples)).search(__doc__, scale=scale, references={"none": []})
