"""Which ensemble from the weights of one net buys most accuracy for each operation?

BatchEnsemble and SuperWeights can stop after any member, MIMO cannot; independent members pay for
every weight. Teterwak et al. (2024, supplementary Figure 1): accuracy against inference time on
CIFAR-100 with WRN-28-5. Members and budgets are not published: here four WRN-28-5, and
WRN-28-[5,4,3], from the weights of one WRN-28-5 (9.12 million), with cutout; tau 0.1, beta 0.9. The
axis is operations instead of time. 5,000 images are held out, by which the subsets of a line are
chosen; the paper trains on all. Of its baselines, AutoSlim (Yu & Huang 2019) is not here; MSDNet
and HNE are those of `studies/ensembles.py`. BatchEnsemble and MIMO train by the code of their
published figures (Nado et al. 2021). `cpu` scale: WRN-16-1.75, and WRN-16-[1.75,1.25,1.1].
"""

import tuneparts as tp
from studies.ensembles import baseline_arms, hne, msdnet
from studies.sharing import CUTOUT, Sharing, apart, of_widths


def search(scale: tp.Scale) -> tp.Search:
    setting = Sharing(scale)
    widths = of_widths(scale, 5, 4, 3)
    net, num = widths[0], scale.pick(smoke=2, cpu=3, paper=4)
    members = (net,) * num
    budget = scale.pick(smoke=210_000, cpu=530_000, paper=9_120_000)
    plain = setting.training(**CUTOUT, holds_out=True)
    wide = [one.width / net.width for one in widths]
    return setting.search(
        __doc__,
        {
            "swn_widths": setting.noted(setting.gradient_shared(widths, budget, holds_out=True)),
            "swn_equal": setting.equal(members, common=plain, budget=budget),
            **baseline_arms(setting, net, num, member_norms=False, **plain),
            "slimmable": tp.methods.Slimmable(**plain, members=widths),
            "universally_slimmable": tp.methods.UniversallySlimmable(**plain, net=net, widths=wide),
            "ssn": tp.methods.Ssn(**plain, members=widths, budget=budget),
            "msdnet": msdnet(setting, plain),
            "hne": hne(setting, plain),
            "deep_ensemble": apart(**plain, members=members),
            "independent_widths": apart(**plain, members=widths),
        },
        holds_out=True,
        compare=("swn_widths", "batch_ensemble"),
        figures=("anytime", "scores"),
    )
