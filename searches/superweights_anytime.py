"""How much accuracy does each operation buy, when a prediction may stop after any member?

Every subset of members is an operating point. Members of several widths, and of several widths and
depths, from the weights of one net; against independent members, thin ones, and a slimmable net.
"""

from typing import Any

from tuneparts.augment.fixed import FixedConfig
from tuneparts.data.config import DataConfig
from tuneparts.ensembles.deep import DeepEnsembleConfig
from tuneparts.ensembles.slimmable import SlimmableConfig
from tuneparts.models import WideResNet
from tuneparts.search.spec import Arm, Resources, Scale, Search
from tuneparts.superweights.config import SuperweightsConfig

NOTES = """
Teterwak et al. (2024, supplementary Figure 2): WRN-28-[7,4,3], and WRN-28-[7,4] with WRN-16-[7,4],
on CIFAR-100 from 18 million weights, with cutout; tau 0.1, beta 0.9. Independent
members pay for every weight and bound what sharing can reach; thin members pay as much as the
SuperWeights. The slimmable net has the widths of the first ensemble (the paper: 3 to 7). Random
clusters and thin members are controls that the paper does not have. `cpu` scale:
WRN-16-[1.75,1.25,1.1] and WRN-16-[1.75,1.1] with WRN-10-[1.75,1.1] on 800 rotated digits of
8 x 8 pixels, norms of the batch in the gradient analysis.
"""
EPOCH = 50_000 // 128
EPOCHS = 222
"""Twenty to search, one to compare layers, two hundred to train, one to compare uses."""


def search(scale: Scale) -> Search:
    """Shared, independent and thin members of two kinds, and a slimmable net."""
    is_paper = scale is Scale.PAPER
    passes = scale.pick(smoke=24, cpu=120, paper=200 * EPOCH)
    searched = scale.pick(smoke=24, cpu=120, paper=EPOCHS * EPOCH)
    note = "22 epochs of search and analysis" if is_paper else ""
    widths = scale.pick(
        smoke=_nets((10, 1.5), (10, 1.1)),
        cpu=_nets((16, 1.75), (16, 1.25), (16, 1.1)),
        paper=_nets((28, 7), (28, 4), (28, 3)),
    )
    depths = scale.pick(
        smoke=_nets((16, 1.1), (10, 1.1)),
        cpu=_nets((16, 1.75), (16, 1.1), (10, 1.75), (10, 1.1)),
        paper=_nets((28, 7), (28, 4), (16, 7), (16, 4)),
    )
    budget = scale.pick(smoke=210_000, cpu=530_000, paper=18_000_000)
    resources = Resources(gpus=1 if is_paper else 0)
    shared = SuperweightsConfig(
        **_training(scale, searched, is_searched=True),
        members=widths,
        allocation={"budget": budget},
        sharing={"clusters": "gradient", "coefficients": "mapped", "tau": 0.1, "beta": 0.9},
        stages=_stages(scale),
    )
    plain = _training(scale, passes, is_searched=False)
    return Search(
        name="superweights_anytime",
        question="How much accuracy does each operation buy when prediction may stop any time?",
        notes=NOTES,
        scale=scale,
        data=scale.pick(
            smoke=DataConfig(name="digits", rotated=True, num_train=200, num_val=100),
            cpu=DataConfig(name="digits", rotated=True, num_train=800, num_val=300),
            paper=DataConfig(name="cifar100"),
        ),
        metric="val/nll",
        passes=passes,
        seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2, 3, 4), paper=(0, 1, 2)),
        arms=(
            Arm(name="multi_width", config=shared, resources=resources, budget_note=note),
            Arm(
                name="multi_width_random",
                config=shared.replaced({"sharing.clusters": "random"}),
                resources=resources,
                budget_note=note,
            ),
            Arm(
                name="multi_depth_width",
                config=shared.replaced({"members": depths}),
                resources=resources,
                budget_note=note,
            ),
            Arm(
                name="independent_width",
                config=DeepEnsembleConfig(**plain, members=widths),
                resources=resources,
            ),
            Arm(
                name="independent_depth_width",
                config=DeepEnsembleConfig(**plain, members=depths),
                resources=resources,
            ),
            Arm(
                name="thin_width",
                config=DeepEnsembleConfig(**plain, members=widths, parameter_budget=budget),
                resources=resources,
            ),
            Arm(
                name="slimmable",
                config=SlimmableConfig(
                    **plain,
                    members=scale.pick(
                        smoke=widths,
                        cpu=widths,
                        paper=_nets((28, 7), (28, 6), (28, 5), (28, 4), (28, 3)),
                    ),
                ),
                resources=resources,
            ),
        ),
        figures=("accuracy", "anytime", "membership"),
    )


def _nets(*sizes: tuple[int, float]) -> tuple[WideResNet, ...]:
    return tuple(WideResNet(depth=depth, width=width) for depth, width in sizes)


def _training(scale: Scale, passes: int, *, is_searched: bool) -> dict[str, Any]:
    optimiser = {"kind": "sgd", "lr": 0.1, "nesterov": True, "weight_decay": 5e-4}
    # 60, 120 and 160 epochs; with a search, the comparison of uses is one epoch more.
    milestones = (61 / 201, 121 / 201, 161 / 201) if is_searched else (0.3, 0.6, 0.8)
    is_paper = scale is Scale.PAPER
    fixed = FixedConfig(crop_padding=4, flip=True, cutout=16) if is_paper else FixedConfig()
    return {
        "passes": passes,
        "interval": scale.pick(smoke=12, cpu=30, paper=EPOCH),
        "batch_size": scale.pick(smoke=32, cpu=50, paper=128),
        "optimiser": optimiser
        | ({"schedule": "steps", "milestones": milestones} if is_paper else {"schedule": "cosine"}),
        "augmentation": fixed,
        "train_on": "all" if is_paper else "train",
    }


def _stages(scale: Scale) -> dict[str, Any]:
    if scale is not Scale.PAPER:
        return {"search": 0.1, "untie": 0.05, "analysis": 0.03, "norms": "train"}
    return {"search": 20 / EPOCHS, "untie": 10 / EPOCHS, "analysis": 1 / EPOCHS}
