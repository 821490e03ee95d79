"""Does sharing templates beat spending the same parameters on smaller nets, and when?

Teterwak et al. (2024, supplementary Table 3): four WRN-28-10 on CIFAR-100 at 7, 15 and 36.5 million
template weights, and WRN-34-8, 28-12, 28-10, 28-8 at the same budgets. Random clusters and thin
ensembles are controls that the paper does not have. The released allocation needs 8.7 (equal
members) and 15.2 million weights (mixed members) at the least, so the smallest budgets merge
clusters here, and mixed members use the envelope chain. `cpu` scale: three WRN-16-1, and
WRN-22-0.8, 16-1.2, 16-1; the analysis of gradients takes 3 % of the steps, and numbers do not
compare with the paper's. Thin ensembles count all parameters in their budget, SuperWeights their
templates only, 3 to 9 % fewer.
"""

import tuneparts as tp
from studies.sharing import AT_RANDOM, LONGER, SEARCHED_NOTE, Sharing, apart, wide_resnets


def search(scale: tp.Scale) -> tp.Search:
    setting = Sharing(scale)
    common = setting.training()
    equal = scale.pick(
        smoke=wide_resnets((16, 1)) * 2,
        cpu=wide_resnets((16, 1)) * 3,
        paper=wide_resnets((28, 10)) * 4,
    )
    mixed = {
        "members": scale.pick(
            smoke=wide_resnets((16, 1.2), (16, 1)),
            cpu=wide_resnets((22, 0.8), (16, 1.2), (16, 1)),
            paper=wide_resnets((34, 8), (28, 12), (28, 10), (28, 8)),
        ),
        "allocation.chain": "envelope",
        # They begin with tied coefficients, and untie them by gradients.
        "sharing.coefficients": "mapped",
        "sharing.beta": 0.9,
        **setting.at_paper({"stages": setting.stages(), **LONGER}),
    }
    arms: dict[str, tp.Method | tp.Arm] = {}
    for budget in scale.pick(
        smoke=(173_000,), cpu=(60_000, 173_000, 350_000), paper=(7_000_000, 15_000_000, 36_500_000)
    ):
        size = f"{budget // 1_000_000}m" if setting.is_paper else f"{budget // 1000}k"
        one_each = setting.equal(equal, common=common, budget=budget, when_short="merge")
        conflict = setting.searched(one_each)
        searched = {
            "gradient_conflict": conflict,
            "random_clusters": conflict.replaced(AT_RANDOM),
            "heterogeneous": conflict.replaced(mixed),
        }
        arms[f"single_superweight_{size}"] = one_each
        for name, config in searched.items():
            arms[f"{name}_{size}"] = setting.noted(config, SEARCHED_NOTE)
        arms[f"thin_{size}"] = apart(**common, members=equal, parameter_budget=budget)
    scores = ("accuracy", "nll", "ece")
    sweeps = [f"sweep:param.allocation.budget,test/{score}" for score in scores]
    return setting.search(__doc__, arms, figures=("scores", *sweeps))
