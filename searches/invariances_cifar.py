"""Which method learns the invariance that is in photographs, and none that is not?

CIFAR-10, rotated or upright. The paper's schedule depends on the size, so that size, rotation and
depth are keywords:

    tuneparts search invariances_cifar --scale paper --set num_train=1000 --set depth=14
    tuneparts search invariances_cifar --scale paper --set num_train=1000 --set rotated=false

Mlodozeniec et al. (2023, Table 1, Figure 3 and I.4): FixUp ResNet-8 and -14 on 1,000 to 50,000
images; SGD at 0.1 with a cosine to 0.001, batches of 250, weight decay of 1e-4 that grows for
earlier partitions with the square root, chunks of 80, 10 and 10 per cent, initial defaults, 20
samples of the six ranges of Immer et al. (2022), hyperparameters by Adam at 1e-3. An iteration is
two steps; arms that end in `_iterations` make as many updates as partitioned training, all others
spend as many steps. Their figures were not at hand. At `cpu` scale: 2,000 images pooled to 16 x 16,
a FixUp ResNet-8 of 18,995 weights, 900 iterations, batches of 50, SGD at 0.05, 4 samples, and equal
reach. Laplace takes its factors from a running mean and learns its decay; no figure of the paper's
can be expected of `cpu` scale.
"""

import tuneparts as tp
from studies.photographs import ITERATIONS, iterations, photographs


def search(
    scale: tp.Scale, *, num_train: int = 5000, rotated: bool = True, depth: int = 8
) -> tp.Search:
    """At `paper` scale, from so many images with a FixUp ResNet of 8 or 14 layers."""
    at_paper = iterations(ITERATIONS, num_train) * (2 if rotated else 1)
    return photographs(
        scale,
        __doc__,
        iterations=scale.pick(smoke=10, cpu=900, paper=at_paper),
        start=scale.pick(smoke=0.3, cpu=0.3, paper=0.05),
        chunks={"defaults": "initial"},
        net=tp.nets.FixupResNet(depth=depth, planes=scale.pick(smoke=2, cpu=8, paper=16)),
        data=tp.data.Cifar10(
            rotated=rotated,
            pool=scale.pick(smoke=2, cpu=2, paper=1),
            num_train=scale.pick(smoke=100, cpu=2000, paper=num_train),
            num_test=scale.pick(smoke=100, cpu=2000, paper=None),
        ),
    )
