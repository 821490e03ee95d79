"""The arms of a table of ensembles: one net, several nets from its weights, and what pays in full.

The rows of Table 5 of Teterwak et al. (2024, supplementary), and a thin ensemble besides.
"""

from typing import Any

from studies import rivals
from studies.sharing import BY_GRADIENTS, INITIALISATION, Sharing, apart, wide_resnets
from tuneparts.methods.ensembles.config import BatchEnsemble, Mimo
from tuneparts.methods.superweights.config import SuperWeights
from tuneparts.nets import NetConfig, WideResNet
from tuneparts.search.arm import Arm

LONGER = "published with 250 epochs"
PRIVATE = {"clusters": "depth", "coefficients": "private"}
"""Sharing of equal members: those at one depth share templates, and each has coefficients."""


def table_arms(setting: Sharing, *, beta: float = 0.9, **fields: Any) -> tuple[Arm, ...]:
    """One net, four ways to make it an ensemble, and ensembles that cost more.

    Args:
        setting: whose scale gives nets and budgets.
        beta: of members of different shape.
        fields: of every config besides.
    """
    scale = setting.scale
    common = {**setting.training(), **fields}
    num = scale.pick(smoke=2, cpu=3, paper=4)
    net = scale.pick(
        smoke=WideResNet(depth=10), cpu=WideResNet(depth=16), paper=WideResNet(depth=28, width=10)
    )
    mixed = scale.pick(
        smoke=wide_resnets((16, 1), (10, 1)),
        cpu=wide_resnets((22, 0.8), (16, 1.2), (16, 1)),
        paper=wide_resnets((34, 8), (28, 12), (28, 10), (28, 8)),
    )
    small = scale.pick(smoke=77_000, cpu=173_000, paper=36_500_000)
    large = scale.pick(smoke=126_000, cpu=426_000, paper=120_000_000)
    shared = SuperWeights(
        **common,
        members=(net,) * num,
        allocation={"budget": small, **INITIALISATION},
        sharing=PRIVATE,
    )
    different = {
        "members": mixed,
        "allocation.chain": "envelope",
        "sharing": {**BY_GRADIENTS, "beta": beta},
        "stages": setting.stages(),
        **setting.longer(),
    }
    large_sharing = {"allocation.budget": large, "sharing": {**PRIVATE, "num_bins": None}}
    thin = apart(**common, members=(net,) * num, parameter_budget=small)
    note = "epochs of search and analysis"
    return (
        setting.arm("single", apart(**common, members=(net,))),
        *baseline_arms(setting, net, num, member_norms=True, **common),
        setting.arm("thin", thin),
        setting.arm("swn_ho", shared),
        setting.arm("swn_he", shared.replaced(different), note=note),
        setting.arm("swn_ho_large", shared.replaced(large_sharing)),
        setting.arm("deep_ensemble", apart(**common, members=(net,) * num)),
        rivals.ssn(setting, common, members=(net,) * num, budget=small),
        rivals.hne(setting, common),
    )


def baseline_arms(
    setting: Sharing, net: NetConfig, num: int, *, member_norms: bool, **common: Any
) -> tuple[Arm, ...]:
    """BatchEnsemble and MIMO, at `paper` scale by the recipe of their published figures.

    Args:
        setting: whose scale decides about the recipe.
        net: which all members share.
        num: members of BatchEnsemble; MIMO has at most three.
        member_norms: whether there is a BatchEnsemble with norms of each member too.
        common: fields of both configs.
    """
    published = setting.as_published()
    start = {"fast_start": "normal"} if setting.is_paper else {}
    batch_ensemble = BatchEnsemble(**common, net=net, num_members=num, **start)
    batch_ensemble = batch_ensemble.replaced(published)
    mimo = Mimo(
        **common, net=net, num_members=min(num, 3), batch_repetitions=4 if setting.is_paper else 1
    )
    found = [setting.arm("batch_ensemble", batch_ensemble, note=LONGER)]
    if member_norms:
        by_norms = batch_ensemble.replaced({"member_norms": True})
        found.append(setting.arm("batch_ensemble_norms", by_norms, note=LONGER))
    return (*found, setting.arm("mimo", mimo.replaced(published), note=LONGER))
