"""With its own settings tuned at equal cost, which way to the hypers is best on photographs?

As `benchmark_digits`, on 5,000 photographs of CIFAR-10: mirror images, motions (shifts stand for
crops), brightness and contrast are what is learnt or searched.
"""

from studies.tuning import Tuned, affine_space
from tuneparts.data.config import Data
from tuneparts.hypers import Affine, Flip
from tuneparts.nets import MnistCnn
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Scale, Search

COLOUR = ("brightness", "contrast")
NOTES = """
At `cpu` scale 5,000 training and 1,000 validation images of 16 x 16 pixels, 2,000 test images, a
small net, one augmentation sample in training and four in scoring. Searching arms mirror images
with a probability of up to one half. There is no oracle.
"""


def search(scale: Scale) -> Search:
    """Learners, searching arms and references, each with its tuning."""
    steps = scale.pick(smoke=16, cpu=1200, paper=60_000)
    small = MnistCnn(channels=(16, 32), hidden=(64, 32))
    samples = {"samples": scale.pick(smoke=1, cpu=1, paper=20), "eval_samples": 4}
    flips = {"hypers.flip.probability": Uniform(low=0.0, high=0.5)}
    colours = {f"hypers.colour.{name}": Uniform(low=0.0, high=0.6) for name in COLOUR}
    setting = Tuned(
        shared={
            "steps": steps,
            "interval": steps // 4,
            "net": scale.pick(smoke=small, cpu=small, paper=MnistCnn()),
            "batch_size": 50,
            "optimiser": {"lr": 0.003},
        },
        learnt={
            "affine": dict.fromkeys(Affine.NAMES, 0.1),
            "colour": dict.fromkeys(COLOUR, 0.1),
            "flip": Flip(probability=0.1),
            **samples,
        },
        space={**affine_space(Affine.NAMES, 0.5), **colours, **flips},
    )
    data = Data(
        name="cifar10",
        pool=scale.pick(smoke=2, cpu=2, paper=1),
        num_train=scale.pick(smoke=200, cpu=5000, paper=None),
        num_val=scale.pick(smoke=100, cpu=1000, paper=5000),
        num_test=scale.pick(smoke=100, cpu=2000, paper=None),
    )
    return setting.search(
        name="benchmark_cifar",
        notes=NOTES,
        scale=scale,
        data=data,
        references={"none": None},
    )
