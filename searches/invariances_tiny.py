"""Does one partitioned run learn the augmentation of larger photographs in more classes?

Size and rotation are keywords, because the paper's schedule depends on them:

    tuneparts search invariances_tiny --scale paper --set num_train=100000 --set rotated=true

Mlodozeniec et al. (2023, Table 1 and I.4): ResNet-50 with GroupNorm on 10,000, 50,000 or 100,000
images of TinyImagenet, 80,000, 80,000 or 40,000 iterations (as printed; perhaps reversed), rotated
images 120,000; chunks of 80 and 20 per cent, all else as for CIFAR-10. Laplace is left out: 200
classes take 200 backward passes for each evidence step, and the authors could not run it on a
ResNet-14 either. `cpu` scale is a small run of the same code, which would not show an effect: 2,000
images pooled to 16 x 16, a net of eight layers, 600 iterations.
"""

import tuneparts as tp
from studies.photographs import TINY_ITERATIONS, iterations, photographs


def search(scale: tp.Scale, *, num_train: int = 10_000, rotated: bool = False) -> tp.Search:
    """Partitioned training, other learners, references and retrained nets."""
    at_paper = 120_000 if rotated else iterations(TINY_ITERATIONS, num_train)
    small = tp.nets.ResNet50Gn(num_per_stage=1)
    return photographs(
        scale,
        __doc__,
        iterations=scale.pick(smoke=10, cpu=600, paper=at_paper),
        has_laplace=False,
        num_classes=200,
        chunks={"proportions": (0.8, 0.2)},
        net=scale.pick(smoke=small, cpu=small, paper=tp.nets.ResNet50Gn()),
        data=tp.data.TinyImagenet(
            rotated=rotated,
            pool=scale.pick(smoke=4, cpu=4, paper=1),
            num_train=scale.pick(smoke=200, cpu=2000, paper=num_train),
            num_test=scale.pick(smoke=200, cpu=2000, paper=None),
        ),
    )
