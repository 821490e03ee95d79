"""How do accuracy, distinct weights and entropy change from round to round?

For every combination of how strongly deviations are pulled and how far weights may move at first.
"""

from itertools import product

from tuneparts.data.config import DataConfig
from tuneparts.models import DigitsCnn, ResNet18
from tuneparts.pwfn.config import PwfnConfig
from tuneparts.search.spec import Arm, Resources, Scale, Search

NOTES = """
Subia-Waud & Dasmahapatra (2023, appendix, Figure 4) draw all combinations of alpha, epochs
between rounds and a threshold gamma, which they do not define; here the first threshold delta is
varied, and epochs in `pwfn_epochs`. Reports come often, so that every round is seen; weights that
are not fixed yet count as values of their own, so that entropy starts near the logarithm of their
number. At `cpu` scale: 5,000 rotated MNIST digits at 14 x 14 pixels and a net of 6,218 weights.
"""


def search(scale: Scale) -> Search:
    """One arm for each combination, so that each has a curve."""
    passes = scale.pick(smoke=20, cpu=1600, paper=15_234)
    alphas = scale.pick(smoke=(-1,), cpu=(-11, -3, 1), paper=(-11, -7, -3))
    deltas = scale.pick(smoke=(1,), cpu=(1, 4), paper=(1, 4))

    def config(power: int, delta: float) -> PwfnConfig:
        return PwfnConfig(
            passes=passes,
            interval=passes // 20,
            net=scale.pick(
                smoke=DigitsCnn(), cpu=DigitsCnn(channels=(8, 16), hidden=32), paper=ResNet18()
            ),
            batch_size=scale.pick(smoke=20, cpu=50, paper=256),
            optimiser=scale.pick(
                smoke={"lr": 0.005},
                cpu={"lr": 0.005, "schedule": "cosine"},
                paper={"kind": "sgd", "lr": 0.1, "weight_decay": 5e-4, "schedule": "cosine"},
            ),
            augmentation=scale.pick(smoke={}, cpu={}, paper={"crop_padding": 4, "flip": True}),
            pretrain=scale.pick(smoke=0.5, cpu=0.5, paper=10_500 / 15_234),
            sigma={"alpha": 2.0**power},
            quantiser={"kind": "clusters", "delta": delta},
        )

    return Search(
        name="pwfn_rounds",
        question="How do accuracy, distinct weights and entropy change from round to round?",
        notes=NOTES,
        scale=scale,
        data=scale.pick(
            smoke=DataConfig(name="digits", num_train=200, num_val=100),
            cpu=DataConfig(
                name="mnist", rotated=True, pool=2, num_train=5000, num_val=1000, num_test=5000
            ),
            paper=DataConfig(name="cifar10", num_val=5000),
        ),
        metric="val/accuracy",
        passes=passes,
        seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2, 3, 4), paper=(0, 1, 2)),
        arms=tuple(
            Arm(
                name=f"alpha_{'m' if power < 0 else ''}{abs(power)}_delta_{delta}",
                config=config(power, delta),
                resources=scale.pick(smoke=Resources(), cpu=Resources(), paper=Resources(gpus=0.5)),
            )
            for power, delta in product(alphas, deltas)
        ),
        figures=(
            "accuracy:val/accuracy",
            "accuracy:size/unique_weights",
            "accuracy:size/entropy",
        ),
    )
