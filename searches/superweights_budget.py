"""Does sharing templates beat spending the same parameters on smaller nets, and when?

Ensembles at three budgets: one SuperWeight per layer, clusters learnt from gradient conflict,
random clusters of the same sizes, members of different shape, and thin nets that share nothing.
"""

from typing import Any

from studies.sharing import INITIALISATION, Sharing, apart, wide_resnets
from tuneparts.methods.superweights.config import SuperWeights
from tuneparts.search.arm import Arm
from tuneparts.search.spec import Scale, Search

NOTES = """
Teterwak et al. (2024, supplementary Table 3): four WRN-28-10 on CIFAR-100 at 7, 15 and 36.5 million
template weights, and WRN-34-8, 28-12, 28-10, 28-8 at the same budgets. The random clusters and the
thin ensembles are controls that the paper does not have. The released allocation needs 8.7 (equal
members) and 15.2 million weights (mixed members) at the least, so the smallest budgets merge
clusters here, and mixed members use the envelope chain. `cpu` scale: three WRN-16-1 and WRN-22-0.8,
16-1.2, 16-1 on 800 rotated MNIST digits of 14 x 14 pixels, norms of the batch in the gradient
analysis, which takes 3 % of the steps. Absolute numbers do not compare with the paper's. Thin
ensembles count all parameters in their budget, SuperWeights their templates only, 3 to 9 % fewer.
"""
SEARCHED_EPOCHS = 221
"""Twenty of training with hard sharing, one to compare gradients of layers, two hundred more."""
NOTE = "epochs of search and analysis besides the training"


def search(scale: Scale) -> Search:
    """Five ways to spend each of three budgets."""
    setting = Sharing(scale=scale)
    common = setting.training()
    budgets = scale.pick(
        smoke=(173_000,), cpu=(60_000, 173_000, 350_000), paper=(7_000_000, 15_000_000, 36_500_000)
    )
    equal = scale.pick(
        smoke=wide_resnets((16, 1)) * 2,
        cpu=wide_resnets((16, 1)) * 3,
        paper=wide_resnets((28, 10)) * 4,
    )
    mixed = scale.pick(
        smoke=wide_resnets((16, 1.2), (16, 1)),
        cpu=wide_resnets((22, 0.8), (16, 1.2), (16, 1)),
        paper=wide_resnets((34, 8), (28, 12), (28, 10), (28, 8)),
    )
    arms: list[Arm] = []
    for budget in budgets:
        size = f"{budget // 1_000_000}m" if setting.is_paper else f"{budget // 1000}k"
        allocation = {"budget": budget, "when_short": "merge", **INITIALISATION}
        one_each = SuperWeights(
            **common,
            members=equal,
            allocation=allocation,
            sharing={"clusters": "depth", "coefficients": "private"},
        )
        conflict = one_each.replaced(
            {
                "stages": setting.stages(epochs=SEARCHED_EPOCHS, unties=False),
                "sharing": {"clusters": "gradient", "coefficients": "private"},
                "steps": setting.steps(SEARCHED_EPOCHS),
            }
        )
        random = conflict.replaced({"sharing.clusters": "random"})
        different = conflict.replaced(
            {
                **_mixed(setting),
                "members": mixed,
                "allocation": {**allocation, "chain": "envelope"},
            }
        )
        thin = apart(**common, members=equal, parameter_budget=budget)
        arms += [
            setting.arm(f"single_superweight_{size}", one_each),
            setting.arm(f"gradient_conflict_{size}", conflict, note=NOTE),
            setting.arm(f"random_clusters_{size}", random, note=NOTE),
            setting.arm(f"heterogeneous_{size}", different, note=NOTE),
            setting.arm(f"thin_{size}", thin),
        ]
    return setting.search(
        name="superweights_budget",
        question="Does sharing templates beat smaller nets at the same budget, and when?",
        notes=NOTES,
        steps=setting.steps(),
        arms=tuple(arms),
        figures=(
            "scores",
            "sweep:param.allocation.budget,test/accuracy",
            "sweep:param.allocation.budget,test/nll",
            "sweep:param.allocation.budget,test/ece",
        ),
    )


def _mixed(setting: Sharing) -> dict[str, Any]:
    """Members of different shape begin with tied coefficients, and untie them by gradients."""
    tied = {"sharing.coefficients": "mapped", "sharing.beta": 0.9}
    stages = {"stages": setting.stages()} if setting.is_paper else {}
    return {**tied, **stages, **setting.longer()}
