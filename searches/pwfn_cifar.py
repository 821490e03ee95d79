"""Where rounding hurts, at 1.5 to 3 bits a weight of CIFAR-10, do learnt deviations help?

A net with BatchNorm that does not fit its training images to the end, and sizes at which rounding
to the nearest value costs points.
"""

from typing import Any

from studies.fixing import Fixing
from tuneparts.search.arm import Arm
from tuneparts.search.spec import Scale, Search

NOTES = """
On rotated digits most methods keep what a net of 6,218 weights knows, and deviations become nearly
equal, because the training loss leaves no curvature. Here: 10,000 images of CIFAR-10 at 16 x 16
pixels with crops and flips, and a ResNet-18 of width 8 with BatchNorm (about 175,000 weights),
pretrained for 30 epochs once for each seed. Ten rounds over six epochs. Every arm recalibrates
BatchNorm after each fixing. Deviations are pulled with an exposure of 3 to cutoffs S of 0.05 and
0.08 (0.05, 0.1 and 0.2 at `paper` scale), which decide the size; `permuted` and `constant` are
shown to the clustering instead of `learnt`. `free` is the same schedule without fixing.
`fixing/spread` is the 90th over the 10th percentile of free deviations. `matched` compares families
at equal entropy, paired over seeds. Sizes were chosen by pilots on another draw (seed 100), whose
test accuracies were seen.
"""


def search(scale: Scale) -> Search:
    """Learnt, permuted and constant deviations at several sizes, and the baselines around them."""
    setting = Fixing(scale=scale, harder=True)
    recalibrate = scale.pick(smoke=2, cpu=20, paper=50)

    def arm(name: str, **changes: Any) -> Arm:
        return setting.arm(name, setting.config(recalibrate=recalibrate, **changes))

    arms = [
        arm(
            f"{control}_cutoff_{hundredths}",
            sigma={"exposure": 3.0, "cutoff": hundredths / 100, "control": control},
        )
        for hundredths in scale.pick(smoke=(5,), cpu=(5, 8), paper=(5, 10, 20))
        for control in ("learnt", "permuted", "constant")
    ]
    arms += [
        arm(f"nearest_bits_{bits}", quantiser={"kind": "nearest", "bits": bits})
        for bits in scale.pick(smoke=(4,), cpu=(5, 4), paper=(5, 4, 3, 2))
    ]
    arms += [
        arm(f"kmeans_{count}", quantiser={"kind": "kmeans", "num_values": count})
        for count in scale.pick(smoke=(8,), cpu=(8, 4), paper=(16, 8, 4))
    ]
    arms += [
        arm(f"wfn_delta_{count}", quantiser={"kind": "wfn", "delta": count / 1000})
        for count in scale.pick(smoke=(25,), cpu=(30, 45), paper=(15, 30, 60))
    ]
    arms += [
        arm(
            "int4_aware",
            quantiser={"kind": "uniform", "bits": 4, "aware": True},
            fractions=(1.0,),
        ),
        arm("free", quantiser={"kind": "free"}),
    ]
    if scale is not Scale.CPU:  # there it would cost as much as all rounds of an arm of five seeds
        arms.append(setting.arm("float", setting.unfixed()))
    return setting.search(
        name="pwfn_cifar",
        question="Where rounding hurts, do learnt deviations help?",
        notes=NOTES,
        paper_seeds=5,
        arms=tuple(arms),
        figures=(
            "sweep:size/entropy,test/accuracy",
            "matched:size/entropy,test/accuracy",
            f"deviations:{arms[0].name}",
        ),
    )
