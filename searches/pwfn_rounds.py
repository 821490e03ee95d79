"""How do accuracy, distinct weights and entropy change from round to round?

For every combination of how strongly deviations are pulled and how far weights may move at first
(Subia-Waud & Dasmahapatra 2023, appendix, Figure 4, whose threshold gamma is not defined: here
delta is varied, and epochs in `pwfn_epochs`). Weights that are not fixed yet count as values, so
that entropy starts near the logarithm of their number.
"""

import tuneparts as tp
from studies.fixing import Fixing


def search(scale: tp.Scale) -> tp.Search:
    setting = Fixing(scale, num_reports=scale.pick(smoke=20, cpu=20, paper=40))
    arms = {
        f"alpha_{power}_delta_{delta}".replace("-", "m"): setting.config(
            sigma={"alpha": 2.0**power}, quantiser={"kind": "clusters", "delta": delta}
        )
        for power in scale.pick(smoke=(-1,), cpu=(-11, -3, 1), paper=(-11, -7, -3))
        for delta in scale.pick(smoke=(1,), cpu=(1, 4), paper=(1, 4))
    }
    ends = dict.fromkeys([next(iter(arms)), next(reversed(arms))])
    rounds = [
        f"rounds:{metric}" for metric in ("val/accuracy", "size/unique_weights", "size/entropy")
    ]
    return setting.search(
        __doc__, arms, figures=(*rounds, *(f"deviations:{name}" for name in ends))
    )
