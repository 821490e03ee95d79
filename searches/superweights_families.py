"""Can nets of different families share templates, and does it help them?

A Wide ResNet and a MobileNetV2 from the weights of the Wide ResNet alone; against the two nets on
their own, both together at full price, and both made thinner until they cost as much.
"""

from studies.sharing import MIXED_EPOCHS, Sharing, apart
from tuneparts.nets import MobileNetV2, WideResNet
from tuneparts.search.spec import Scale, Search

NOTES = """
Teterwak et al. (2024, supplementary Table 4): MobileNetV2 and WRN-28-5 on CIFAR-100, against a deep
ensemble of the two. Budget and recipe are not published: here the budget is what the WRN-28-5 has
on its own, and the recipe that of their other mixed members (cutout, tau 0.1, beta 0.9). Only
layers with one kind of kernel share, so that the families meet in few places: the 1 x 1
convolutions, which MobileNetV2 is made of and a Wide ResNet has as shortcuts, and the stem.
Depthwise filters share among themselves. The random clusters, the thin ensemble and the single nets
are controls that the paper does not have. `cpu` scale: WRN-16-1.25 and a MobileNetV2 of a quarter
of its width on 800 rotated MNIST digits of 14 x 14 pixels, norms of the batch in the gradient
analysis, and a rate of 0.02: in so few steps the MobileNetV2 learns nothing at the 0.1
of the other searches.
"""
NOTE = f"{MIXED_EPOCHS - 200} epochs of search and analysis"


def search(scale: Scale) -> Search:
    """Shared, at random and by gradients; independent, thin, and each net alone."""
    setting = Sharing(scale=scale, cpu_steps=140, small_lr=0.02)
    wide_resnet = scale.pick(
        smoke=WideResNet(depth=10, width=1.25),
        cpu=WideResNet(depth=16, width=1.25),
        paper=WideResNet(depth=28, width=5),
    )
    mobilenet = MobileNetV2(width=scale.pick(smoke=0.125, cpu=0.25, paper=1.0))
    both = (wide_resnet, mobilenet)
    budget = scale.pick(smoke=150_000, cpu=270_000, paper=9_120_000)
    shared = setting.gradient_shared(both, budget)
    random = shared.replaced({"sharing.clusters": "random"})
    plain = setting.training(milestones=(0.3, 0.6, 0.8), cutout=True)
    thin = apart(**plain, members=both, parameter_budget=budget)
    return setting.search(
        name="superweights_families",
        question="Can nets of different families share templates, and does it help them?",
        notes=NOTES,
        compare=("shared", "deep_ensemble"),
        steps=setting.steps(),
        arms=(
            setting.arm("shared", shared, note=NOTE),
            setting.arm("shared_random", random, note=NOTE),
            setting.arm("deep_ensemble", apart(**plain, members=both)),
            setting.arm("thin", thin),
            setting.arm("wide_resnet", apart(**plain, members=(wide_resnet,))),
            setting.arm("mobilenet", apart(**plain, members=(mobilenet,))),
        ),
        figures=("accuracy", "accuracy:val/nll", "anytime", "membership"),
    )
