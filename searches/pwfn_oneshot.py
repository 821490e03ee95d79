"""Does a weight's learnt deviation say how far it may move, before any training repairs the move?

Deviations alone are trained, then all weights are fixed once, and no training follows. If which
weight has which deviation matters, permuting them, or giving all the same, must cost accuracy.
"""

from studies.fixing import Fixing
from tuneparts.search.arm import Arm
from tuneparts.search.spec import Scale, Search

NOTES = """
The claim of Subia-Waud & Dasmahapatra (2023) is that a weight's own deviation tells how far it may
move. In rounds, training after each fixing repairs what a bad choice did, and hides the difference.
Here every arm has the same pretrained net, seed by seed. Deviations train for as long as all rounds
take otherwise, with means at rest; one step later everything is fixed. `permuted` and `constant`
show the clustering the same deviations at other places, or their median. The first threshold is two
deviations, so that sizes are where rounding starts to cost. The comparison that counts, fixed
before the runs, is `learnt` against `permuted` at exposure 1, at which entropies are equal; the
other exposures say whether it depends on it. `nearest` arms round the same net, `free` leaves it as
it is. Selection plays no part: no arm has anything to select.
"""


def search(scale: Scale) -> Search:
    """Three ways to show deviations at three exposures, rounding, and the net itself."""
    setting = Fixing(scale=scale, converged=True)
    length = scale.pick(smoke=10, cpu=800, paper=4734)
    whole = setting.pretrain + length + 1

    def arm(exposure: float, control: str) -> Arm:
        config = setting.config(
            rounds=length + 1,
            warmup=length / whole,
            fractions=(1.0,),
            sigma={"exposure": exposure, "control": control},
            quantiser={"kind": "clusters", "delta": 2.0},
        )
        return setting.arm(f"{control}_{exposure}".replace(".", "_"), config)

    def once(name: str, **quantiser: object) -> Arm:
        config = setting.config(rounds=1, fractions=(1.0,), quantiser=quantiser)
        return setting.arm(name, config, budget_note="has no deviations to train")

    arms = [
        arm(exposure, control)
        for exposure in scale.pick(smoke=(1,), cpu=(1, 0.3, 3), paper=(1, 0.3, 3))
        for control in ("learnt", "permuted", "constant")
    ]
    arms += [
        once(f"nearest_bits_{bits}", kind="nearest", bits=bits)
        for bits in scale.pick(smoke=(4,), cpu=(5, 4, 3), paper=(7, 6, 5, 4))
    ]
    arms.append(once("free", kind="free"))
    return setting.search(
        name="pwfn_oneshot",
        question="Do learnt deviations say how far each weight may move?",
        notes=NOTES,
        steps=whole,
        paper_seeds=5,
        arms=tuple(arms),
        figures=("sweep:size/entropy,test/accuracy", "sweep:size/entropy,test/nll"),
    )
