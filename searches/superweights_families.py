"""Can nets of different families share templates, and does it help them?

Teterwak et al. (2024, supplementary Table 4): MobileNetV2 and WRN-28-5 on CIFAR-100, against a deep
ensemble of the two. Budget and recipe are not published: here the weights of the WRN-28-5 alone,
and the recipe of their other mixed members (cutout, tau 0.1, beta 0.9). Only layers with one kind
of kernel share, so that the families meet in few places: the 1 x 1 convolutions, which MobileNetV2
is made of and a Wide ResNet has as shortcuts, and the stem. Depthwise filters share among
themselves. Random clusters, the thin ensemble and the single nets are controls that the paper does
not have. `cpu` scale: WRN-16-1.25 and a MobileNetV2 of a quarter of its width, at a rate of 0.02:
in so few steps the MobileNetV2 learns nothing at the 0.1 of the other searches.
"""

import tuneparts as tp
from studies.sharing import AT_RANDOM, CUTOUT, Sharing, apart, wide_resnets


def search(scale: tp.Scale) -> tp.Search:
    setting = Sharing(scale, cpu_steps=140, small_lr=0.02)
    size = scale.pick(smoke=(10, 1.25), cpu=(16, 1.25), paper=(28, 5))
    mobilenet = tp.nets.MobileNetV2(width=scale.pick(smoke=0.125, cpu=0.25, paper=1.0))
    both = (*wide_resnets(size), mobilenet)
    budget = scale.pick(smoke=150_000, cpu=270_000, paper=9_120_000)
    shared, plain = setting.gradient_shared(both, budget), setting.training(**CUTOUT)
    return setting.search(
        __doc__,
        {
            "shared": setting.noted(shared),
            "shared_random": setting.noted(shared.replaced(AT_RANDOM)),
            "deep_ensemble": apart(**plain, members=both),
            "thin": apart(**plain, members=both, parameter_budget=budget),
            "wide_resnet": apart(**plain, members=both[:1]),
            "mobilenet": apart(**plain, members=both[1:]),
        },
        compare=("shared", "deep_ensemble"),
        figures=("accuracy", "accuracy:val/nll", "anytime", "membership"),
    )
