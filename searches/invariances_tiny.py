"""Does one partitioned run learn the augmentation of larger photographs in more classes?

TinyImagenet, 200 classes of 64 x 64 pixels, and a ResNet-50 with GroupNorm; size and rotation are
keywords, because the paper's schedule depends on them:

    tuneparts search invariances_tiny --scale paper --set num_train=100000 --set rotated=true
"""

from studies import reach
from studies.photographs import TINY_ITERATIONS, Photographs, iterations
from tuneparts.data.config import Data
from tuneparts.nets import ResNet50Gn
from tuneparts.search.spec import Scale, Search

NOTES = """
Mlodozeniec et al. (2023, Table 1 and I.4): ResNet-50 with GroupNorm on 10,000, 50,000 or 100,000
images, 80,000, 80,000 or 40,000 iterations (as printed; perhaps reversed), rotated images 120,000;
chunks of 80 and 20 per cent, all else as for CIFAR-10. Laplace is left out: 200 classes take 200
backward passes for each evidence step, and the authors could not run it on a ResNet-14 either. At
`cpu` scale 20 classes' worth of images would not show an effect on two cores: it is a small run of
the same code, 2,000 images pooled to 16 x 16, a net of eight layers, 600 iterations.
"""


def search(scale: Scale, *, num_train: int = 10_000, rotated: bool = False) -> Search:
    """Partitioned training, its rivals, references and retrained nets.

    Args:
        scale: size of the question.
        num_train: images at `paper` scale.
        rotated: whether images are turned.
    """
    at_paper = 120_000 if rotated else iterations(TINY_ITERATIONS, num_train)
    setting = Photographs(
        scale=scale,
        iterations=scale.pick(smoke=10, cpu=600, paper=at_paper),
        net=scale.pick(
            smoke=ResNet50Gn(num_per_stage=1),
            cpu=ResNet50Gn(num_per_stage=1),
            paper=ResNet50Gn(),
        ),
        proportions=(0.8, 0.2),
        defaults="zero",
        has_laplace=False,
    )
    return setting.search(
        name="invariances_tiny",
        question="Does one partitioned run learn the augmentation of larger photographs?",
        notes=f"{NOTES}\n{reach.listed(setting.learners(), num_classes=200)}\n",
        data=Data(
            name="tinyimagenet",
            rotated=rotated,
            pool=scale.pick(smoke=4, cpu=4, paper=1),
            num_train=scale.pick(smoke=200, cpu=2000, paper=num_train),
            num_test=scale.pick(smoke=200, cpu=2000, paper=None),
        ),
    )
