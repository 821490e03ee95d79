"""Does a weight's learnt deviation say how far it may move, before any training repairs the move?

Subia-Waud & Dasmahapatra (2023) claim so. In rounds, training after each fixing repairs what a bad
choice did, and hides the difference. Here every arm has the same pretrained net, seed by seed.
Deviations train for as long as all rounds take otherwise, with means at rest; one step later
everything is fixed. `permuted` and `constant` show the clustering the same deviations at other
places, or their median: if which weight has which deviation matters, that costs accuracy. The first
threshold is two deviations, so that sizes are where rounding starts to cost. The comparison that
counts, fixed before the runs, is `learnt` against `permuted` at exposure 1, at which entropies are
equal; the other exposures say whether it depends on it. `nearest` arms round the same net, `free`
leaves it as it is. No arm has anything to select.
"""

from typing import Any

import tuneparts as tp
from studies.fixing import Fixing


def search(scale: tp.Scale) -> tp.Search:
    setting = Fixing(scale, converged=True)
    length = scale.pick(smoke=10, cpu=800, paper=4734)
    whole = setting.pretrain + length + 1
    learning: dict[str, Any] = {
        "rounds": length + 1,
        "warmup": length / whole,
        "fractions": (1.0,),
        "quantiser": {"kind": "clusters", "delta": 2.0},
    }
    arms: dict[str, tp.Method | tp.Arm] = {}
    for exposure in scale.pick(smoke=(1,), cpu=(1, 0.3, 3), paper=(1, 0.3, 3)):
        for control in ("learnt", "permuted", "constant"):
            sigma = {"exposure": exposure, "control": control}
            name = f"{control}_{exposure}".replace(".", "_")
            arms[name] = setting.config(**learning, sigma=sigma)
    rounded: dict[str, Any] = {
        f"nearest_bits_{bits}": {"kind": "nearest", "bits": bits}
        for bits in scale.pick(smoke=(4,), cpu=(5, 4, 3), paper=(7, 6, 5, 4))
    }
    for name, quantiser in {**rounded, "free": {"kind": "free"}}.items():
        config = setting.config(rounds=1, fractions=(1.0,), quantiser=quantiser)
        arms[name] = tp.Arm(config=config, budget_note="has no deviations to train")
    return setting.search(
        __doc__,
        arms,
        steps=whole,
        paper_seeds=5,
        figures=("sweep:size/entropy,test/accuracy", "sweep:size/entropy,test/nll"),
    )
