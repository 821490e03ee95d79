"""Tuned at equal cost, which way to the hyperparameters is best on photographs?

As `benchmark_digits`: mirror images, motions (shifts instead of crops), brightness and contrast are
learnt or searched, mirror images with a probability of up to one half. At `cpu` scale 5,000
training and 1,000 validation images of CIFAR-10 at 16 x 16 pixels, 2,000 test images, a small net,
one augmentation sample in training and four in scoring. There is no oracle.
"""

import tuneparts as tp
from studies.comparison import TIGHT_RANGE, space
from studies.tuning import Tuned


def search(scale: tp.Scale) -> tp.Search:
    steps = scale.pick(smoke=16, cpu=1200, paper=60_000)
    small = tp.nets.MnistCnn(channels=(16, 32), hidden=(64, 32))
    colours = ("brightness", "contrast")
    setting = Tuned(
        shared={
            "data": tp.data.Cifar10(
                pool=scale.pick(smoke=2, cpu=2, paper=1),
                num_train=scale.pick(smoke=200, cpu=5000, paper=None),
                num_val=scale.pick(smoke=100, cpu=1000, paper=5000),
                num_test=scale.pick(smoke=100, cpu=2000, paper=None),
            ),
            "net": scale.pick(smoke=small, cpu=small, paper=tp.nets.MnistCnn()),
            "steps": steps,
            "interval": steps // 4,
            "batch_size": 50,
            "optimiser": tp.Adam(lr=0.003),
        },
        learnt={
            "affine": dict.fromkeys(tp.Affine.NAMES, 0.1),
            "colour": dict.fromkeys(colours, 0.1),
            "flip": tp.hypers.Flip(probability=0.1),
            "samples": scale.pick(smoke=1, cpu=1, paper=20),
            "eval_samples": 4,
        },
        space={
            **space(TIGHT_RANGE),
            **{f"hypers.colour.{name}": tp.Uniform(0.0, 0.6) for name in colours},
            "hypers.flip.probability": tp.Uniform(0.0, 0.5),
        },
    )
    return setting.search(__doc__, scale=scale, references={"none": []})
