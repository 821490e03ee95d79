"""Is the best form of partitioned training as good as validation-set optimisation, on MNIST?

Setting and steps of `random_vs_partitioned_mnist`, arms of `partition_best`, where the form was
fixed; nothing was tuned on MNIST. `tuneparts extend` adds seeds.
"""

import tuneparts as tp
from studies import digits
from studies.comparison import Comparison
from studies.forms import verdict


def search(scale: tp.Scale) -> tp.Search:
    steps = scale.pick(smoke=40, cpu=2400, paper=60_000)
    shared = {**digits.mnist(scale), "steps": steps, "interval": steps // 4}
    return verdict(Comparison(shared, digits.samples(scale)), __doc__, scale=scale, gpus=0.5)
