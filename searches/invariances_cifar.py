"""Which method learns the invariance that is in photographs, and none that is not?

CIFAR-10, each image turned by its own angle over the full circle, or upright; subsets of it, and
two nets. The paper's schedule depends on the size, so that size, rotation and depth are keywords:

    for n in 1000 5000 10000 20000 50000; do
        tuneparts search invariances_cifar --scale paper --set num_train=$n --set depth=14
        tuneparts search invariances_cifar --scale paper --set num_train=$n --set rotated=false
    done
"""

from studies import reach
from studies.photographs import ITERATIONS, Photographs, iterations, small_net
from tuneparts.data.config import Data
from tuneparts.search.spec import Scale, Search

NOTES = """
Mlodozeniec et al. (2023, Table 1, Figure 3 and I.4): FixUp ResNet-8 and -14 on 1,000 to 50,000
images of CIFAR-10, upright and rotated, with 2,400, 8,000, 12,000, 20,000 and 40,000 iterations by
size and twice as many for rotated images; SGD at 0.1 with a cosine to 0.001, batches of 250, weight
decay of 1e-4 that grows for earlier partitions with the square root, chunks of 80, 10 and 10 per
cent, initial defaults, 20 samples of the six ranges of Immer et al. (2022), hypers by Adam at 1e-3.
An iteration is two steps; arms that end in `_iterations` make as many updates as partitioned
training, all others spend as many steps. Their figures were not at hand. At `cpu` scale: 2,000
images pooled to 16 x 16, a FixUp ResNet-8 of 18,995 weights, 900 iterations, batches of 50, SGD
at 0.05, 4 samples, and equal reach. Laplace takes its factors from a running mean and learns its
decay; no figure of the paper's can be expected of `cpu` scale.
"""


def search(scale: Scale, *, num_train: int = 5000, rotated: bool = True, depth: int = 8) -> Search:
    """Methods that learn six ranges, references and retrained nets.

    Args:
        scale: size of the question.
        num_train: images at `paper` scale.
        rotated: whether images are turned.
        depth: of the FixUp ResNet, 8 or 14.
    """
    at_paper = iterations(ITERATIONS, num_train) * (2 if rotated else 1)
    setting = Photographs(
        scale=scale,
        iterations=scale.pick(smoke=10, cpu=900, paper=at_paper),
        net=small_net(scale, depth),
        start=scale.pick(smoke=0.3, cpu=0.3, paper=0.05),
    )
    return setting.search(
        name="invariances_cifar",
        question="Which method learns the invariance that is in photographs, and none that is not?",
        notes=f"{NOTES}\n{reach.listed(setting.learners())}\n",
        data=Data(
            name="cifar10",
            rotated=rotated,
            pool=scale.pick(smoke=2, cpu=2, paper=1),
            num_train=scale.pick(smoke=100, cpu=2000, paper=num_train),
            num_test=scale.pick(smoke=100, cpu=2000, paper=None),
        ),
    )
