"""How do ensembles from one budget stand corruptions of CIFAR-10, beside BatchEnsemble and MIMO?

Clean CIFAR-10 and CIFAR-10-C. Besides the ensembles of one budget there are the two of several
widths and depths, with the thresholds that the paper has for CIFAR-10.
"""

from studies.ensembles import table_arms
from studies.sharing import CIFAR10_BETA, MIXED_EPOCHS, Sharing, wide_resnets
from tuneparts.data.config import Data
from tuneparts.search.spec import Scale, Search

NOTES = """
Teterwak et al. (2024, supplementary Table 1, and the columns of CIFAR-10 in Table 5): the ensembles
of `superweights_ensembles` on CIFAR-10 and the fifteen published kinds of CIFAR-10-C, a folder
`CIFAR-10-C` beside the data. BatchEnsemble and MIMO train by the code of their published figures
(Nado et al. 2021). `multi_width` is WRN-28-[7,4,3] with beta 0.95, `multi_depth_width` WRN-28-[7,4]
and WRN-16-[7,4] with beta 0.5, both from 18 million weights with cutout. The beta of `swn_he` is
not published; it has that of the other members of several depths. Table 1 names its two SuperWeight
rows alike: the first is taken for `swn_ho`, the second for `swn_he`. `cpu` scale: 4,000 images of
CIFAR-10 at 16 x 16 pixels, WRN-16-1 and ensembles of three, no corrupted images, since those of
CIFAR-10-C are not at hand everywhere; norms of the batch in the gradient analysis. `smoke`: digits.
"""
NOTE = f"{MIXED_EPOCHS - 200} epochs of search and analysis"


def search(scale: Scale) -> Search:
    """The table's ensembles, and members of several widths and depths."""
    setting = Sharing(scale=scale, cpu_steps=400)
    widths = scale.pick(
        smoke=wide_resnets((10, 1.5), (10, 1.1)),
        cpu=wide_resnets((16, 1.75), (16, 1.25), (16, 1.1)),
        paper=wide_resnets((28, 7), (28, 4), (28, 3)),
    )
    depths = scale.pick(
        smoke=wide_resnets((16, 1.1), (10, 1.1)),
        cpu=wide_resnets((16, 1.75), (16, 1.1), (10, 1.75), (10, 1.1)),
        paper=wide_resnets((28, 7), (28, 4), (16, 7), (16, 4)),
    )
    budget = scale.pick(smoke=210_000, cpu=530_000, paper=18_000_000)
    mixed = [
        setting.arm(
            name,
            setting.gradient_shared(members, budget, beta=beta),
            note=NOTE,
        )
        for name, members, beta in (
            ("multi_width", widths, CIFAR10_BETA["widths"]),
            ("multi_depth_width", depths, CIFAR10_BETA["depths"]),
        )
    ]
    data = scale.pick(
        smoke=Data(name="digits", rotated=True, num_train=200, num_val=100),
        cpu=Data(name="cifar10", pool=2, num_train=4000, num_val=1000, num_test=4000),
        paper=Data(name="cifar10", corrupted="main"),
    )
    arms = table_arms(setting, beta=CIFAR10_BETA["depths"])
    return setting.search(
        name="superweights_cifar10",
        question="How do ensembles from one budget stand corruptions of CIFAR-10?",
        notes=NOTES,
        data=data,
        compare=("swn_ho", "batch_ensemble"),
        references=("single",),
        steps=setting.steps(),
        arms=(*arms, *mixed),
        figures=(
            "scores",
            *(("scores:corrupted/accuracy",) if setting.is_paper else ()),
            "calibration",
            "anytime",
        ),
    )
