"""Which ensemble from the weights of one net buys most accuracy for each operation?

SuperWeights of equal and of different members beside BatchEnsemble, which stops after any member,
MIMO, which cannot stop, and slimmable nets. Independent members pay for every weight.
"""

from studies import rivals
from studies.ensembles import PRIVATE, baseline_arms
from studies.sharing import INITIALISATION, MIXED_EPOCHS, Sharing, apart, wide_resnets
from tuneparts.methods.ensembles.config import Slimmable, UniversallySlimmable
from tuneparts.methods.superweights.config import SuperWeights
from tuneparts.search.spec import Scale, Search

NOTES = """
Teterwak et al. (2024, supplementary Figure 1): accuracy against inference time on CIFAR-100 with
WRN-28-5. Members and budgets are not published: here four WRN-28-5, and WRN-28-[5,4,3], from the
weights of one WRN-28-5 (9.12 million), with cutout as in their anytime figures; tau 0.1, beta 0.9.
The axis is operations, and not the time of their machine. 5,000 images are held out, by which the
subsets of a line are chosen; the paper trains on all. Of its baselines, AutoSlim (Yu & Huang 2019)
is not here; SSN, MSDNet and HNE are those of `studies/rivals.py`. BatchEnsemble and MIMO train by
the code of their published figures (Nado et al. 2021).
`cpu` scale: WRN-16-1.75, and WRN-16-[1.75,1.25,1.1], on 800 rotated MNIST digits of 14 x 14 pixels,
norms of the batch in the gradient analysis.
"""
NOTE = f"{MIXED_EPOCHS - 200} epochs of search and analysis"


def search(scale: Scale) -> Search:
    """Two SuperWeight ensembles, the baselines of the figure, and independent members."""
    setting = Sharing(scale=scale)
    widths = scale.pick(
        smoke=wide_resnets((10, 1.5), (10, 1.1)),
        cpu=wide_resnets((16, 1.75), (16, 1.25), (16, 1.1)),
        paper=wide_resnets((28, 5), (28, 4), (28, 3)),
    )
    net = widths[0]
    num = scale.pick(smoke=2, cpu=3, paper=4)
    budget = scale.pick(smoke=210_000, cpu=530_000, paper=9_120_000)
    mixed = setting.gradient_shared(widths, budget, holds_out=True)
    plain = setting.training(milestones=(0.3, 0.6, 0.8), cutout=True, holds_out=True)
    equal = SuperWeights(
        **plain,
        members=(net,) * num,
        allocation={"budget": budget, **INITIALISATION},
        sharing=PRIVATE,
    )
    universal = UniversallySlimmable(
        **plain, net=net, widths=tuple(one.width / net.width for one in widths)
    )
    return setting.search(
        name="superweights_efficient",
        question="Which ensemble from the weights of one net buys most accuracy per operation?",
        notes=NOTES,
        holds_out=True,
        compare=("swn_widths", "batch_ensemble"),
        steps=setting.steps(),
        arms=(
            setting.arm("swn_widths", mixed, note=NOTE),
            setting.arm("swn_equal", equal),
            *baseline_arms(setting, net, num, member_norms=False, **plain),
            setting.arm("slimmable", Slimmable(**plain, members=widths)),
            setting.arm("universally_slimmable", universal),
            rivals.ssn(setting, plain, members=widths, budget=budget),
            rivals.msdnet(setting, plain),
            rivals.hne(setting, plain),
            setting.arm("deep_ensemble", apart(**plain, members=(net,) * num)),
            setting.arm("independent_widths", apart(**plain, members=widths)),
        ),
        figures=("anytime", "scores"),
    )
