"""How do ensembles from one budget stand corruptions of CIFAR-10, next to BatchEnsemble and MIMO?

Teterwak et al. (2024, supplementary Table 1, and the columns of CIFAR-10 in Table 5): the ensembles
of `superweights_ensembles` on CIFAR-10 and the fifteen published kinds of CIFAR-10-C, a folder
`CIFAR-10-C` next to the data. BatchEnsemble and MIMO train by the code of their published figures
(Nado et al. 2021). `multi_width` is WRN-28-[7,4,3] with beta 0.95, `multi_depth_width` WRN-28-[7,4]
and WRN-16-[7,4] with beta 0.5, both from 18 million weights with cutout. The beta of `swn_he` is
not published; it has that of the other members of several depths. Table 1 names its two SuperWeight
rows alike: the first is taken for `swn_ho`, the second for `swn_he`. `cpu` scale: 4,000 images of
CIFAR-10 at 16 x 16 pixels, WRN-16-1 and ensembles of three, no corrupted images. `smoke`: digits.
"""

import tuneparts as tp
from studies.ensembles import table_arms
from studies.sharing import CIFAR10_BETA, Sharing, of_depths, of_widths


def search(scale: tp.Scale) -> tp.Search:
    setting = Sharing(scale, cpu_steps=400)
    budget = scale.pick(smoke=210_000, cpu=530_000, paper=18_000_000)
    widths, depths = of_widths(scale, 7, 4, 3), of_depths(scale)
    multi_width = setting.gradient_shared(widths, budget, beta=CIFAR10_BETA["widths"])
    multi_depth = setting.gradient_shared(depths, budget, beta=CIFAR10_BETA["depths"])
    return setting.search(
        __doc__,
        {
            **table_arms(setting, beta=CIFAR10_BETA["depths"]),
            "multi_width": setting.noted(multi_width),
            "multi_depth_width": setting.noted(multi_depth),
        },
        data=scale.pick(
            smoke=tp.data.Digits(rotated=True, num_train=200, num_val=100),
            cpu=tp.data.Cifar10(pool=2, num_train=4000, num_val=1000, num_test=4000),
            paper=tp.data.Cifar10(corrupted="main"),
        ),
        compare=("swn_ho", "batch_ensemble"),
        references=("single",),
        figures=(
            *(("scores", "scores:corrupted/accuracy") if setting.is_paper else ("scores",)),
            *("calibration", "anytime"),
        ),
    )
