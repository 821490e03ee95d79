"""How much accuracy does each operation buy, when a prediction may stop after any member?

Every subset of members is an operating point. Teterwak et al. (2024, supplementary Figure 2):
WRN-28-[7,4,3], and WRN-28-[7,4] with WRN-16-[7,4], on CIFAR-100 from 18 million weights, with
cutout; tau 0.1, beta 0.9. Independent members pay for every weight and bound what sharing can
reach; thin members pay as much as the SuperWeights. Slimmable nets have the widths of the first
ensemble (the paper: 3 to 7). The universal one trains four widths a step and takes BatchNorm
statistics from 20 batches, where the paper takes an epoch. Random clusters and thin members are
controls that the paper does not have. `cpu` scale: WRN-16-[1.75,1.25,1.1], and WRN-16-[1.75,1.1]
with WRN-10-[1.75,1.1]. MSDNet and HNE have their own weights, outside the budget.
"""

import tuneparts as tp
from studies.ensembles import hne, msdnet
from studies.sharing import AT_RANDOM, CUTOUT, Sharing, apart, of_depths, of_widths, wide_resnets


def search(scale: tp.Scale) -> tp.Search:
    setting = Sharing(scale)
    widths, depths = of_widths(scale, 7, 4, 3), of_depths(scale)
    slim = scale.pick(
        smoke=widths, cpu=widths, paper=wide_resnets(*((28, width) for width in (7, 6, 5, 4, 3)))
    )
    budget = scale.pick(smoke=210_000, cpu=530_000, paper=18_000_000)
    shared, plain = setting.gradient_shared(widths, budget), setting.training(**CUTOUT)
    universal = tp.methods.UniversallySlimmable(
        **plain, net=slim[0], widths=[net.width / slim[0].width for net in slim]
    )
    return setting.search(
        __doc__,
        {
            "multi_width": setting.noted(shared),
            "multi_width_random": setting.noted(shared.replaced(AT_RANDOM)),
            "multi_depth_width": setting.noted(shared.replaced({"members": depths})),
            "independent_width": apart(**plain, members=widths),
            "independent_depth_width": apart(**plain, members=depths),
            "thin_width": apart(**plain, members=widths, parameter_budget=budget),
            "slimmable": tp.methods.Slimmable(**plain, members=slim),
            "universally_slimmable": universal,
            "ssn_width": tp.methods.Ssn(**plain, members=widths, budget=budget),
            "ssn_depth_width": tp.methods.Ssn(**plain, members=depths, budget=budget),
            "msdnet": msdnet(setting, plain),
            "hne": hne(setting, plain),
        },
        figures=("scores", "anytime", "membership"),
    )
