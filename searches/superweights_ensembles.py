"""How good are ensembles from one budget, compared with one net and with ensembles paid in full?

Teterwak et al. (2024, supplementary Table 5): WRN-28-10 on CIFAR-100, ensembles of four at 36.5
million weights (one net), at 120 million, and four independent nets (146 million). The paper copies
its baselines from other work; here every arm runs under the same loop, BatchEnsemble and MIMO at
`paper` scale by the code of that work (Nado et al. 2021): 250 epochs, an epoch of warm-up, steps at
0.4, 0.8 and 0.9, a penalty of 3e-4 (a decay of 6e-4), fast weights from N(1, 0.5) at half the rate
and undecayed. Theirs differs: eight devices each with its norms, 1 x 1 shortcuts of the raw input,
biases of the head at half the rate. One net and deep ensembles have the recipe of the SuperWeights.
CIFAR-100-C are the fifteen published kinds, where that work made seventeen. The clusters of the
homogeneous ensemble are not published: four bins of depth at the small budget, one cluster per
layer at the large one. The thin ensemble is a control that the paper does not have. `cpu` scale:
ensembles of three WRN-16-1, no corrupted images.
"""

import tuneparts as tp
from studies.ensembles import table_arms
from studies.sharing import Sharing


def search(scale: tp.Scale) -> tp.Search:
    setting = Sharing(scale, cpu_steps=160)
    points = scale.pick(smoke=3, cpu=5, paper=11)
    return setting.search(
        __doc__,
        table_arms(setting, interpolation_points=points),
        compare=("swn_ho", "deep_ensemble"),
        references=("single",),
        figures=(
            *(("scores", "scores:corrupted/accuracy") if setting.is_paper else ("scores",)),
            *("calibration", "accuracy:val/nll", "interpolation"),
        ),
        **setting.at_paper({"data": tp.data.Cifar100(corrupted="main")}),
    )
