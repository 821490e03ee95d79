"""How much do the thresholds matter that decide who shares templates, and who coefficients?

Tau splits clusters by gradient conflict, beta unties coefficients. Random clusters of the very
sizes that each tau gives are the control.
"""

from typing import Any

from tuneparts.augment.fixed import FixedConfig
from tuneparts.data.config import DataConfig
from tuneparts.models import WideResNet
from tuneparts.search.space import Choice
from tuneparts.search.spec import Arm, GridSearch, Resources, Scale, Search
from tuneparts.superweights.config import SuperweightsConfig

NOTES = """
Teterwak et al. (2024, supplementary Figure 4): WRN-28-[7,4] and WRN-16-[7,4] on CIFAR-100 from 18
million weights, tau and beta swept. A beta below -1 never unties (the paper's "shared"), one above
1 unties everything ("not shared"). The random clusters are a control that the paper does not have.
`cpu` scale: WRN-16-[1.25,1] and WRN-10-[1.25] on 800 rotated digits of 8 x 8 pixels, from the
weights of the largest member, norms of the batch in the gradient analysis.
"""
EPOCH = 50_000 // 128
EPOCHS = 222
"""Twenty to search, one to compare layers, two hundred to train, one to compare uses."""


def search(scale: Scale) -> Search:
    """A sweep of tau, the same with random clusters, and a sweep of beta."""
    is_paper = scale is Scale.PAPER
    passes = scale.pick(smoke=24, cpu=120, paper=EPOCHS * EPOCH)
    base = SuperweightsConfig(
        **_training(scale),
        passes=passes,
        members=scale.pick(
            smoke=_nets((16, 1), (10, 1)),
            cpu=_nets((16, 1.25), (16, 1), (10, 1.25)),
            paper=_nets((28, 7), (28, 4), (16, 7), (16, 4)),
        ),
        allocation={"budget": scale.pick(smoke=173_000, cpu=270_000, paper=18_000_000)},
        sharing={"clusters": "gradient", "coefficients": "mapped", "tau": 0.1, "beta": 0.9},
        stages=_stages(scale),
    )
    taus = scale.pick(
        smoke=(0.1,), cpu=(-0.1, 0.0, 0.1, 0.2, 0.4), paper=(-0.1, 0.0, 0.1, 0.2, 0.3, 0.5)
    )
    betas = scale.pick(
        smoke=(0.9,),
        cpu=(-1.1, 0.1, 0.5, 0.9, 1.1),
        paper=(-1.1, 0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 1.1),
    )
    resources = Resources(gpus=1 if is_paper else 0)
    return Search(
        name="superweights_thresholds",
        question="How much do tau and beta matter, and is it the gradients that do?",
        notes=NOTES,
        scale=scale,
        data=scale.pick(
            smoke=DataConfig(name="digits", rotated=True, num_train=200, num_val=100),
            cpu=DataConfig(name="digits", rotated=True, num_train=800, num_val=300),
            paper=DataConfig(name="cifar100", num_val=5000),
        ),
        metric="val/nll",
        passes=passes,
        seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2, 3, 4), paper=(0, 1, 2)),
        arms=(
            Arm(
                name="tau",
                config=base,
                algorithm=GridSearch(),
                space={"sharing.tau": Choice(options=taus)},
                resources=resources,
            ),
            Arm(
                name="tau_random_clusters",
                config=base.replaced({"sharing.clusters": "random"}),
                algorithm=GridSearch(),
                space={"sharing.tau": Choice(options=taus)},
                resources=resources,
            ),
            Arm(
                name="beta",
                config=base,
                algorithm=GridSearch(),
                space={"sharing.beta": Choice(options=betas)},
                resources=resources,
            ),
        ),
        figures=(
            "sweep:param.sharing.tau,test/accuracy",
            "sweep:param.sharing.tau,test/nll",
            "sweep:param.sharing.tau,superweights/clusters",
            "sweep:param.sharing.beta,test/accuracy",
            "sweep:param.sharing.beta,test/nll",
            "sweep:param.sharing.beta,superweights/vectors",
        ),
    )


def _nets(*sizes: tuple[int, float]) -> tuple[WideResNet, ...]:
    return tuple(WideResNet(depth=depth, width=width) for depth, width in sizes)


def _training(scale: Scale) -> dict[str, Any]:
    optimiser = {"kind": "sgd", "lr": 0.1, "nesterov": True, "weight_decay": 5e-4}
    # 60, 120 and 160 epochs of training, of which the comparison of uses is one more.
    steps = {"schedule": "steps", "milestones": (61 / 201, 121 / 201, 161 / 201)}
    is_paper = scale is Scale.PAPER
    fixed = FixedConfig(crop_padding=4, flip=True, cutout=16) if is_paper else FixedConfig()
    return {
        "interval": scale.pick(smoke=12, cpu=30, paper=EPOCH),
        "batch_size": scale.pick(smoke=32, cpu=50, paper=128),
        "optimiser": optimiser | (steps if is_paper else {"schedule": "cosine"}),
        "augmentation": fixed,
    }


def _stages(scale: Scale) -> dict[str, Any]:
    if scale is not Scale.PAPER:
        return {"search": 0.1, "untie": 0.05, "analysis": 0.03, "norms": "train"}
    return {"search": 20 / EPOCHS, "untie": 10 / EPOCHS, "analysis": 1 / EPOCHS}
