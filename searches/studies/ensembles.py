"""The arms of a table of ensembles: one net, several nets from its weights, and what pays in full.

The rows of Table 5 of Teterwak et al. (2024, supplementary), and a thin ensemble besides.
"""

from collections.abc import Mapping
from typing import Any

import tuneparts as tp
from studies.sharing import BY_GRADIENTS, EPOCH, LONGER, PRIVATE, Sharing, apart, wide_resnets

AS_PUBLISHED = {
    "steps": 250 * EPOCH,
    "optimiser.milestones": (0.4, 0.8, 0.9),
    "optimiser.warmup": 1 / 250,
    "optimiser.weight_decay": 6e-4,
}
"""BatchEnsemble and MIMO by the code of their published figures (Nado et al. 2021): 250 epochs, a
fifth of the rate from 0.4, 0.8 and 0.9 of them on, an epoch of warm-up, and 3e-4 times the squared
weights as a penalty, which is a decay of 6e-4 as it is written here."""


def table_arms(
    setting: Sharing, *, beta: float = 0.9, **fields: Any
) -> dict[str, tp.Method | tp.Arm]:
    """One net, four ways to make it an ensemble, and ensembles that cost more."""
    scale = setting.scale
    common = {**setting.training(), **fields}
    num = scale.pick(smoke=2, cpu=3, paper=4)
    single = wide_resnets(scale.pick(smoke=(10, 1.0), cpu=(16, 1.0), paper=(28, 10.0)))
    mixed = scale.pick(
        smoke=wide_resnets((16, 1), (10, 1)),
        cpu=wide_resnets((22, 0.8), (16, 1.2), (16, 1)),
        paper=wide_resnets((34, 8), (28, 12), (28, 10), (28, 8)),
    )
    small = scale.pick(smoke=77_000, cpu=173_000, paper=36_500_000)
    large = scale.pick(smoke=126_000, cpu=426_000, paper=120_000_000)
    members = single * num
    shared = setting.equal(members, common=common, budget=small)
    different = {
        "members": mixed,
        "allocation.chain": "envelope",
        "sharing": {**BY_GRADIENTS, "beta": beta},
        "stages": setting.stages(),
        **setting.at_paper(LONGER),
    }
    large_sharing = {"allocation.budget": large, "sharing": {**PRIVATE, "num_bins": None}}
    return {
        "single": apart(**common, members=single),
        **baseline_arms(setting, single[0], num, member_norms=True, **common),
        "thin": apart(**common, members=members, parameter_budget=small),
        "swn_ho": shared,
        "swn_he": setting.noted(shared.replaced(different), "epochs of search and analysis"),
        "swn_ho_large": shared.replaced(large_sharing),
        "deep_ensemble": apart(**common, members=members),
        "ssn": tp.methods.Ssn(**common, members=members, budget=small),
        "hne": hne(setting, common),
    }


def baseline_arms(
    setting: Sharing, net: Any, num: int, *, member_norms: bool, **common: Any
) -> dict[str, tp.Arm]:
    """BatchEnsemble, also with norms of each member, and MIMO, which has at most three."""
    start = setting.at_paper({"fast_start": "normal"})
    repetitions = 4 if setting.is_paper else 1
    batch_ensemble = tp.methods.BatchEnsemble(**common, net=net, num_members=num, **start)
    configs: dict[str, tp.Method] = {"batch_ensemble": batch_ensemble}
    if member_norms:
        configs["batch_ensemble_norms"] = batch_ensemble.replaced({"member_norms": True})
    configs["mimo"] = tp.methods.Mimo(
        **common, net=net, num_members=min(num, 3), batch_repetitions=repetitions
    )
    published, note = setting.at_paper(AS_PUBLISHED), "published with 250 epochs"
    return {n: setting.noted(one.replaced(published), note) for n, one in configs.items()}


def msdnet(setting: Sharing, fields: Mapping[str, Any]) -> tp.Arm:
    """One net with exits, trained as in the paper but with batches of 128 instead of 64.

    The paper: 16 blocks with 12, 24 and 48 channels, 300 epochs, a tenth of the rate from a half
    and from three quarters on, decay 1e-4.
    """
    sizes = setting.scale.pick(
        smoke=tp.nets.MsdNet(exits=2, base=1, step=1, channels=8, growth=4, exit_channels=32),
        cpu=tp.nets.MsdNet(exits=5, exit_channels=64),
        paper=tp.nets.MsdNet(exits=16, growth=12),
    )
    published = {
        "steps": 300 * EPOCH,
        "optimiser.milestones": (0.5, 0.75),
        "optimiser.step_factor": 0.1,
        "optimiser.weight_decay": 1e-4,
        "augmentation.cutout": 0,
    }
    config = tp.methods.MsdNetEnsemble(**fields, sizes=sizes).replaced(setting.at_paper(published))
    return setting.noted(config, "published with 300 epochs")


def hne(setting: Sharing, fields: Mapping[str, Any]) -> tp.methods.Hne:
    """A tree of the comparison's nets with 16 leaves, for the paper's changed ResNet-50."""
    size, levels = setting.scale.pick(smoke=((10, 1), 1), cpu=((16, 1), 2), paper=((28, 3), 4))
    return tp.methods.Hne(**fields, net=wide_resnets(size)[0], levels=levels)
