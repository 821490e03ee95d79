"""How good are ensembles from one budget, beside one net and beside ensembles that pay in full?

Clean and corrupted test data: accuracy, likelihood, calibration, and how much members differ.
"""

from typing import Any

from studies import rivals
from studies.sharing import BY_GRADIENTS, EPOCH, INITIALISATION, Sharing, apart, wide_resnets
from tuneparts.augment.corruptions import KINDS
from tuneparts.ensembles.batch_ensemble import BatchEnsembleConfig
from tuneparts.ensembles.mimo import MimoConfig
from tuneparts.models import WideResNet
from tuneparts.search.spec import Scale, Search
from tuneparts.superweights.learner import SuperweightsConfig

NOTES = """
Teterwak et al. (2024, supplementary Table 5): WRN-28-10 on CIFAR-100, ensembles of four at 36.5
million weights (one net), at 120 million, and four independent nets (146 million). The paper copies
its baselines from other work, trained for 250 epochs with weight decay 3e-4; here every arm runs
under the same loop, BatchEnsemble and MIMO with those settings at `paper` scale. Corruptions are
nine batched kinds in five severities in the manner of CIFAR-C, not its images. Which clusters the
homogeneous ensemble used is not published: four bins of depth at the small budget, one cluster per
layer at the large one. `cpu` scale: WRN-16-1 on 800 rotated MNIST digits of 14 x 14 pixels,
ensembles of three, four kinds of corruption. The thin ensemble is a control that the paper does
not have.
"""
LONGER = "published with 250 epochs"


def search(scale: Scale) -> Search:
    """One net, four ways to make it an ensemble, and ensembles that cost more."""
    setting = Sharing(scale=scale, cpu_passes=160)
    common = {
        **setting.training(),
        "corruptions": scale.pick(
            smoke=("contrast",),
            cpu=("gaussian_noise", "gaussian_blur", "contrast", "pixelate"),
            paper=KINDS,
        ),
        "interpolation_points": scale.pick(smoke=3, cpu=11, paper=11),
    }
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
    longer = {"passes": 250 * EPOCH, "optimiser.weight_decay": 3e-4} if setting.is_paper else {}
    private = {"clusters": "depth", "coefficients": "private"}
    shared = SuperweightsConfig(
        **common,
        members=(net,) * num,
        allocation={"budget": small, **INITIALISATION},
        sharing=private,
    )
    batch_ensemble = BatchEnsembleConfig(**common, net=net, num_members=num)
    mimo = MimoConfig(
        **common, net=net, num_members=min(num, 3), batch_repetitions=4 if setting.is_paper else 1
    )
    by_norms = batch_ensemble.replaced({**longer, "member_norms": True})
    large_sharing = {"allocation.budget": large, "sharing": {**private, "num_bins": None}}
    thin = apart(**common, members=(net,) * num, parameter_budget=small)
    return setting.search(
        name="superweights_ensembles",
        question="How good are ensembles from one budget, on clean and on corrupted data?",
        notes=NOTES,
        compare=("swn_ho", "deep_ensemble"),
        references=("single",),
        passes=setting.passes(),
        arms=(
            setting.arm("single", apart(**common, members=(net,))),
            setting.arm("batch_ensemble", batch_ensemble.replaced(longer), note=LONGER),
            setting.arm("batch_ensemble_norms", by_norms, note=LONGER),
            setting.arm("mimo", mimo.replaced(longer), note=LONGER),
            setting.arm("thin", thin),
            setting.arm("swn_ho", shared),
            setting.arm(
                "swn_he",
                shared.replaced(_mixed(setting, mixed)),
                note="epochs of search and analysis",
            ),
            setting.arm("swn_ho_large", shared.replaced(large_sharing)),
            setting.arm("deep_ensemble", apart(**common, members=(net,) * num)),
            rivals.ssn(setting, common, members=(net,) * num, budget=small),
            rivals.hne(setting, common),
        ),
        figures=(
            "scores",
            "scores:corrupted/accuracy",
            "calibration",
            "accuracy:val/nll",
            "interpolation",
        ),
    )


def _mixed(setting: Sharing, members: tuple[WideResNet, ...]) -> dict[str, Any]:
    """Members of different shape, with clusters and coefficients found by gradients."""
    return {
        "members": members,
        "allocation.chain": "envelope",
        "sharing": BY_GRADIENTS,
        "stages": setting.stages(),
        **setting.longer(),
    }
