"""How long must weights train between two rounds of fixing?

Free weights make up for what fixing did to the others. The longer they may, the better, but the
authors found three epochs to be enough.
"""

from tuneparts.data.config import DataConfig
from tuneparts.models import DigitsCnn, ResNet18
from tuneparts.pwfn.config import PwfnConfig
from tuneparts.search.spec import Arm, Resources, Scale, Search

NOTES = """
Subia-Waud & Dasmahapatra (2023, appendix, Figure 3) vary the epochs between rounds on CIFAR-10
with a ResNet-18. Every arm starts from the same pretrained net, seed by seed, so that arms differ
in passes: that is the question. At `cpu` scale: 5,000 rotated MNIST digits at 14 x 14 pixels, a
net of 6,218 weights, and an alpha for which the shorter runs still move deviations.
"""


def search(scale: Scale) -> Search:
    """One arm for each number of epochs."""
    per_epoch = scale.pick(smoke=10, cpu=100, paper=175)
    pretrain = scale.pick(smoke=10, cpu=800, paper=10_500)
    epochs = scale.pick(smoke=(1, 2), cpu=(0.25, 0.5, 1, 3), paper=(1, 2, 3, 5, 10))
    usual = scale.pick(smoke=1, cpu=1, paper=3)

    def passes(number: float) -> int:
        """Pretraining, a twentieth of an epoch, and nine rounds."""
        return pretrain + round((9 * number + 0.05) * per_epoch)

    def config(number: float) -> PwfnConfig:
        return PwfnConfig(
            passes=passes(number),
            interval=max(1, passes(number) // 4),
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
            pretrain=pretrain / passes(number),
            first_round=0.05 / number,
            sigma={"alpha": scale.pick(smoke=0.5, cpu=0.5, paper=2.0**-11)},
        )

    return Search(
        name="pwfn_epochs",
        question="How long must weights train between two rounds of fixing?",
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
        passes=passes(usual),
        seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2, 3, 4), paper=(0, 1, 2)),
        arms=tuple(
            Arm(
                name=f"epochs_{number}".replace(".", "_"),
                config=config(number),
                resources=scale.pick(smoke=Resources(), cpu=Resources(), paper=Resources(gpus=0.5)),
                budget_note="" if number == usual else "epochs between rounds are the question",
            )
            for number in epochs
        ),
        figures=("accuracy:val/accuracy", "accuracy:size/entropy"),
    )
