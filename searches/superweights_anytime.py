"""How much accuracy does each operation buy, when a prediction may stop after any member?

Every subset of members is an operating point. Members of several widths, and of several widths and
depths, from the weights of one net; against independent members, thin ones, slimmable nets, and the
methods that the paper compares with: Shapeshifter Networks, a net with exits, a tree of nets.
"""

from studies import rivals
from studies.sharing import MIXED_EPOCHS, Sharing, apart, wide_resnets
from tuneparts.methods.ensembles.config import Slimmable, UniversallySlimmable
from tuneparts.search.spec import Scale, Search

NOTES = """
Teterwak et al. (2024, supplementary Figure 2): WRN-28-[7,4,3], and WRN-28-[7,4] with WRN-16-[7,4],
on CIFAR-100 from 18 million weights, with cutout; tau 0.1, beta 0.9. Independent members pay for
every weight and bound what sharing can reach; thin members pay as much as the SuperWeights.
Slimmable nets have the widths of the first ensemble (the paper: 3 to 7). The universal one trains
four widths a step and takes BatchNorm statistics from 20 batches, where the paper takes an epoch.
Random clusters and thin members are controls that the paper does not have. `cpu` scale:
WRN-16-[1.75,1.25,1.1] and WRN-16-[1.75,1.1] with WRN-10-[1.75,1.1] on 800 rotated MNIST
digits of 14 x 14 pixels, norms of the batch in the gradient analysis. SSN, MSDNet and HNE as in
`studies/rivals.py`; the last two have weights of their own, outside the budget.
"""
NOTE = f"{MIXED_EPOCHS - 200} epochs of search and analysis"


def search(scale: Scale) -> Search:
    """Shared, independent and thin members of two kinds, and slimmable nets."""
    setting = Sharing(scale=scale)
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
    shared = setting.gradient_shared(widths, budget)
    plain = setting.training(milestones=(0.3, 0.6, 0.8), cutout=True)
    slim = scale.pick(
        smoke=widths,
        cpu=widths,
        paper=wide_resnets((28, 7), (28, 6), (28, 5), (28, 4), (28, 3)),
    )
    universal = UniversallySlimmable(
        **plain, net=slim[0], widths=tuple(net.width / slim[0].width for net in slim)
    )
    random = shared.replaced({"sharing.clusters": "random"})
    return setting.search(
        name="superweights_anytime",
        question="How much accuracy does each operation buy when prediction may stop any time?",
        notes=NOTES,
        steps=setting.steps(),
        arms=(
            setting.arm("multi_width", shared, note=NOTE),
            setting.arm("multi_width_random", random, note=NOTE),
            setting.arm("multi_depth_width", shared.replaced({"members": depths}), note=NOTE),
            setting.arm("independent_width", apart(**plain, members=widths)),
            setting.arm("independent_depth_width", apart(**plain, members=depths)),
            setting.arm("thin_width", apart(**plain, members=widths, parameter_budget=budget)),
            setting.arm("slimmable", Slimmable(**plain, members=slim)),
            setting.arm("universally_slimmable", universal),
            rivals.ssn(setting, plain, members=widths, budget=budget, name="ssn_width"),
            rivals.ssn(setting, plain, members=depths, budget=budget, name="ssn_depth_width"),
            rivals.msdnet(setting, plain),
            rivals.hne(setting, plain),
        ),
        figures=("scores", "anytime", "membership"),
    )
