"""What does a stronger pull on the deviations buy, and what does it cost?

A stronger pull lets weights move further when they are fixed: fewer distinct values, a lower
entropy, and at some point a lower accuracy.
"""

from tuneparts.data.config import DataConfig
from tuneparts.models import DigitsCnn, ResNet18
from tuneparts.pwfn.config import PwfnConfig
from tuneparts.search.space import Choice
from tuneparts.search.spec import Arm, GridSearch, Resources, Scale, Search

NOTES = """
Subia-Waud & Dasmahapatra (2023, appendix, Figure 2) sweep alpha on CIFAR-10 with a ResNet-18 and
find that it trades accuracy for compressibility. `paper` scale follows their schedule (27.05
epochs of batch 256 in ten rounds, SGD at 1e-3) after 60 epochs of pretraining of our own; theirs
came with its weights. At `cpu` scale: 5,000 rotated MNIST digits at 14 x 14 pixels and a net of
6,218 weights. What alpha does depends on learning rate and length: `fixing/exposure` makes runs
comparable, and alphas are larger here because runs are shorter. The gradient of the loss is
clipped before the pull is added, so that a strong pull does not shrink it.
"""


def search(scale: Scale) -> Search:
    """One arm, a grid over alpha."""
    passes = scale.pick(smoke=20, cpu=1600, paper=15_234)
    config = PwfnConfig(
        passes=passes,
        interval=passes // 4,
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
    )
    data = scale.pick(
        smoke=DataConfig(name="digits", num_train=200, num_val=100),
        cpu=DataConfig(
            name="mnist", rotated=True, pool=2, num_train=5000, num_val=1000, num_test=5000
        ),
        paper=DataConfig(name="cifar10", num_val=5000),
    )
    alphas = scale.pick(
        smoke=(2.0**-11, 0.5),
        cpu=(0.0, 2.0**-11, 2.0**-5, 2.0**-3, 2.0**-1, 2.0),
        paper=(0.0, 2.0**-12, 2.0**-11, 2.0**-9, 2.0**-7, 2.0**-5, 2.0**-3, 2.0**-1),
    )
    return Search(
        name="pwfn_alpha",
        question="What does a stronger pull on the deviations buy, and what does it cost?",
        notes=NOTES,
        scale=scale,
        data=data,
        metric="val/accuracy",
        passes=passes,
        seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2, 3, 4), paper=(0, 1, 2)),
        arms=(
            Arm(
                name="pwfn",
                config=config,
                algorithm=GridSearch(),
                space={"sigma.alpha": Choice(options=alphas)},
                resources=scale.pick(smoke=Resources(), cpu=Resources(), paper=Resources(gpus=0.5)),
            ),
        ),
        figures=(
            "sweep:param.sigma.alpha,test/accuracy",
            "sweep:param.sigma.alpha,size/unique_weights",
            "sweep:param.sigma.alpha,size/entropy",
            "sweep:param.sigma.alpha,size/coded_bytes",
        ),
    )
