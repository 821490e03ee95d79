"""How good are ensembles from one budget, beside one net and beside ensembles that pay in full?

Clean and corrupted test data: accuracy, likelihood, calibration, and how much members differ.
"""

from typing import Any

from studies.ensembles import table_arms
from studies.sharing import Sharing
from tuneparts.data.config import Data
from tuneparts.search.spec import Scale, Search

NOTES = """
Teterwak et al. (2024, supplementary Table 5): WRN-28-10 on CIFAR-100, ensembles of four at 36.5
million weights (one net), at 120 million, and four independent nets (146 million). The paper copies
its baselines from other work; here every arm runs under the same loop, BatchEnsemble and MIMO at
`paper` scale by the code of that work (Nado et al. 2021): 250 epochs, an epoch of warm-up, steps at
0.4, 0.8 and 0.9, a penalty of 3e-4 (a decay of 6e-4), fast weights from N(1, 0.5) at half the rate
and undecayed. Theirs differs: eight devices with norms of their own, 1 x 1 shortcuts of the raw
input, biases of the head at half the rate. One net and deep ensembles have the recipe of the
SuperWeights. CIFAR-100-C are the fifteen published kinds, where that work made seventeen of its
own. Which clusters the homogeneous ensemble used is not published: four bins of depth at the small
budget, one cluster per layer at the large one. `cpu` scale: WRN-16-1 on 800 rotated MNIST digits of
14 x 14 pixels, ensembles of three, no corrupted images. The thin ensemble is a control that the
paper does not have.
"""


def search(scale: Scale) -> Search:
    """One net, four ways to make it an ensemble, and ensembles that cost more."""
    setting = Sharing(scale=scale, cpu_steps=160)
    arms = table_arms(
        setting,
        interpolation_points=scale.pick(smoke=3, cpu=5, paper=11),
    )
    published: dict[str, Any] = (
        {"data": Data(name="cifar100", corrupted="main")} if setting.is_paper else {}
    )
    return setting.search(
        name="superweights_ensembles",
        question="How good are ensembles from one budget, on clean and on corrupted data?",
        notes=NOTES,
        compare=("swn_ho", "deep_ensemble"),
        references=("single",),
        steps=setting.steps(),
        arms=arms,
        figures=(
            "scores",
            *(("scores:corrupted/accuracy",) if setting.is_paper else ()),
            "calibration",
            "accuracy:val/nll",
            "interpolation",
        ),
        **published,
    )
