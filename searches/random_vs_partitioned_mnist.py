"""How many random-search trials does one run that learns its augmentation replace, on MNIST?

As `random_vs_partitioned`, with the CNN of Table 9 of Mlodozeniec et al. (2023), batches of 200
and 20 augmentation samples at `paper` scale; the number of iterations is not stated (30,000, a
choice). At `cpu` scale: 5,000 training and 1,000 validation images of 14 x 14 pixels, 2,000 test
images, a net of 15,114 weights, batches of 50, 4 samples in training and 8 in scoring. Hyper rates
are as printed at `paper` scale, and of equal reach at the others.
"""

import tuneparts as tp
from studies import digits
from studies.comparison import Comparison

check = digits.check


def search(scale: tp.Scale) -> tp.Search:
    steps = scale.pick(smoke=40, cpu=2400, paper=60_000)
    comparison = Comparison(
        {**digits.mnist(scale), "steps": steps},
        digits.samples(scale),
        reach=None if scale is tp.Scale.PAPER else 18.0,
        evidence_every=scale.pick(smoke=20, cpu=20, paper=300),
    )
    return comparison.search(__doc__, scale=scale, gpus=0.5)
