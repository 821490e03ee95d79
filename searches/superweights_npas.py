"""How good is one net whose layers share weights, beside a narrow net of as many weights?

Parameter allocation search: the architecture stays, the number of weights is given.
"""

from studies import rivals
from studies.sharing import INITIALISATION, Sharing, apart
from tuneparts.methods.superweights.config import SuperWeights
from tuneparts.nets import WideResNet
from tuneparts.search.arm import Arm
from tuneparts.search.spec import Scale, Search

NOTES = """
Teterwak et al. (2024), parameter allocation search on CIFAR: one WRN-28-10 from fewer weights than
it has (36.5 million). Its published budgets were not at hand; here a quarter, a half and all of the
net's weights, which is as low as four bins of depth go (8.7 million). Clusters are bins of depth,
learnt by gradients (tau 0.1), or random of the sizes that gradients give. Thin nets have as many
parameters in all and share nothing; both they and random clusters are controls that the paper does
not have. `cpu` scale: WRN-22-2 on 800 rotated MNIST digits of 14 x 14 pixels, norms of the batch in
the gradient analysis.
"""
SEARCHED_EPOCHS = 221
"""Twenty of training with hard sharing, one to compare gradients of layers, two hundred more."""
NOTE = "epochs of search and analysis besides the training"


def search(scale: Scale) -> Search:
    """The whole net, and four ways to spend each budget."""
    setting = Sharing(scale=scale)
    common = setting.training()
    net = scale.pick(
        smoke=WideResNet(depth=16, width=1.1),
        cpu=WideResNet(depth=22, width=2),
        paper=WideResNet(depth=28, width=10),
    )
    budgets = scale.pick(
        smoke=(150_000,),
        cpu=(270_000, 540_000),
        paper=(9_125_000, 18_250_000, 36_500_000),
    )
    arms: list[Arm] = [setting.arm("whole", apart(**common, members=(net,)))]
    for budget in budgets:
        size = f"{budget / 1_000_000:.0f}m" if setting.is_paper else f"{budget // 1000}k"
        bins = SuperWeights(
            **common,
            members=(net,),
            allocation={"budget": budget, **INITIALISATION},
            sharing={"clusters": "depth", "coefficients": "private"},
        )
        learnt = bins.replaced(
            {
                "stages": setting.stages(epochs=SEARCHED_EPOCHS, unties=False),
                "sharing.clusters": "gradient",
                "steps": setting.steps(SEARCHED_EPOCHS),
            }
        )
        random = learnt.replaced({"sharing.clusters": "random"})
        thin = apart(**common, members=(net,), parameter_budget=budget)
        arms += [
            setting.arm(f"bins_{size}", bins),
            setting.arm(f"gradient_{size}", learnt, note=NOTE),
            setting.arm(f"random_{size}", random, note=NOTE),
            setting.arm(f"thin_{size}", thin),
            rivals.ssn(setting, common, members=(net,), budget=budget, name=f"ssn_{size}"),
        ]
    return setting.search(
        name="superweights_npas",
        question="How good is one net whose layers share weights, beside a narrow one?",
        notes=NOTES,
        references=("whole",),
        steps=setting.steps(),
        arms=tuple(arms),
        figures=(
            "scores",
            "sweep:param.allocation.budget,test/accuracy",
            "sweep:param.allocation.budget,superweights/clusters",
        ),
    )
