"""How good is one net whose layers share weights, next to a narrow net of as many weights?

Parameter allocation search (Teterwak et al. 2024) on CIFAR: one WRN-28-10 from fewer weights than
its 36.5 million. The published budgets were not at hand; here a quarter, a half and all of them,
which is as low as four bins of depth go (8.7 million). Clusters are bins of depth, learnt by
gradients (tau 0.1), or random of the sizes that gradients give. Thin nets have as many parameters
in all and share nothing; both they and random clusters are controls that the paper does not have.
`cpu` scale: WRN-22-2.
"""

import tuneparts as tp
from studies.sharing import AT_RANDOM, SEARCHED_NOTE, Sharing, apart, wide_resnets


def search(scale: tp.Scale) -> tp.Search:
    setting = Sharing(scale)
    common = setting.training()
    members = wide_resnets(scale.pick(smoke=(16, 1.1), cpu=(22, 2), paper=(28, 10)))
    arms: dict[str, tp.Method | tp.Arm] = {"whole": apart(**common, members=members)}
    for budget in scale.pick(
        smoke=(150_000,), cpu=(270_000, 540_000), paper=(9_125_000, 18_250_000, 36_500_000)
    ):
        size = f"{budget / 1_000_000:.0f}m" if setting.is_paper else f"{budget // 1000}k"
        bins = setting.equal(members, common=common, budget=budget)
        learnt = setting.searched(bins)
        arms |= {
            f"bins_{size}": bins,
            f"gradient_{size}": setting.noted(learnt, SEARCHED_NOTE),
            f"random_{size}": setting.noted(learnt.replaced(AT_RANDOM), SEARCHED_NOTE),
            f"thin_{size}": apart(**common, members=members, parameter_budget=budget),
            f"ssn_{size}": tp.methods.Ssn(**common, members=members, budget=budget),
        }
    found = ("test/accuracy", "superweights/clusters")
    return setting.search(
        __doc__,
        arms,
        references=("whole",),
        figures=("scores", *(f"sweep:param.allocation.budget,{metric}" for metric in found)),
    )
