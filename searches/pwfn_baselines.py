"""At the same size, is a net of learnt deviations better than one that was simply rounded?

And if so, is it because each weight has a deviation of its own? Two controls say: deviations
permuted among the weights, and one deviation for all.
"""

from typing import Any

from studies.fixing import Fixing
from tuneparts.search.arm import Arm
from tuneparts.search.spec import Scale, Search

NOTES = """
Subia-Waud & Dasmahapatra (2023) compare final accuracies with published ones. Here every arm
starts from the same pretrained net, seed by seed, trains for the same number of steps, and is
compared with those of its own size: entropy in bits a weight (`matched` interpolates each family's
accuracy there, seed by seed). Two references bound all arms: `float` is never rounded and trains
as long by its own schedule; `free` has the schedule of the rounds and no fixing, so that what it
loses against `float` is the schedule's doing and not a quantiser's. Arms called `once` train on as
usual and round at the end; all others fix in the same ten rounds. `int8` and `int4` are what a
practitioner would use: integers with a scale per channel, after training or, as `aware`, during it.
`wfn` is Weight Fixing Networks (2022) after its released code: clusters by relative distance, and a
term of the loss that draws free weights to them. At `paper` scale WFN trains as its authors do
(Adam at 2e-5, gradients clipped at 0.5, their ten fractions); at the other scales it has the
optimiser of all other arms, so that only the method differs. At `cpu` scale: 5,000 rotated MNIST
digits at 14 x 14 pixels and a net of 6,218 weights without BatchNorm, pretrained for 40 epochs. The
spread of deviations (`fixing/spread`, the 90th over the 10th percentile) says how much there is to
permute: near 1, the controls are the method itself.
"""


def search(scale: Scale) -> Search:
    """The method at several strengths, its controls, and the baselines at several sizes."""
    setting = Fixing(scale=scale, converged=True)
    recalibrate = scale.pick(smoke=2, cpu=0, paper=50)

    def arm(name: str, **changes: Any) -> Arm:
        return setting.arm(name, setting.config(recalibrate=recalibrate, **changes))

    own_wfn = {
        "finetune": {"kind": "adam", "lr": 2e-5},
        "clip": 0.5,
        "fractions": (0.3, 0.6, 0.8, 0.9, 0.95, 0.975, 0.99, 0.9975, 0.999, 1.0),
    }
    wfn_training: dict[str, Any] = scale.pick(smoke={}, cpu={}, paper=own_wfn)
    powers = scale.pick(smoke=(-1,), cpu=(-3, -1, 1), paper=(-11, -7, -3))
    controls = ("learnt", "permuted", "constant")
    arms = [
        arm(
            f"pwfn_{control}_alpha_{'m' if power < 0 else ''}{abs(power)}",
            sigma={"alpha": 2.0**power, "control": control},
        )
        for power in powers
        for control in controls
    ]
    for bits in scale.pick(smoke=(4,), cpu=(5, 4, 3), paper=(7, 6, 5, 4)):
        rounding = {"kind": "nearest", "bits": bits}
        arms += [
            arm(f"nearest_bits_{bits}", quantiser=rounding),
            arm(f"once_bits_{bits}", quantiser=rounding, fractions=(1.0,)),
        ]
    arms += [
        arm("powers_of_two", quantiser={"kind": "nearest", "max_order": 1}),
        *(
            arm(
                f"{name}_{count}",
                quantiser={"kind": "kmeans", "num_values": count},
                **changes,
            )
            for count in scale.pick(smoke=(16,), cpu=(64, 32, 16), paper=(256, 128, 64))
            for name, changes in (
                ("kmeans", {}),
                ("once_kmeans", {"fractions": (1.0,)}),
            )
        ),
        *(
            arm(
                f"int{bits}{'_aware' if aware else ''}",
                quantiser={"kind": "uniform", "bits": bits, "aware": aware},
                fractions=(1.0,),
            )
            for bits in scale.pick(smoke=(4,), cpu=(8, 4), paper=(8, 4))
            for aware in (False, True)
        ),
        arm("free", quantiser={"kind": "free"}),
        *(
            arm(
                f"{name}_delta_{thousandths}",
                quantiser={"kind": "wfn", "delta": thousandths / 1000, "ratio": ratio},
                **wfn_training,
            )
            for name, ratio, deltas in (
                ("wfn", 0.4, scale.pick(smoke=(10,), cpu=(10, 15, 25), paper=(10, 15))),
                ("wfn_unpulled", 0.0, scale.pick(smoke=(), cpu=(15,), paper=())),
            )
            for thousandths in deltas
        ),
    ]
    arms.append(setting.arm("float", setting.unfixed()))
    return setting.search(
        name="pwfn_baselines",
        question="At the same size, are learnt deviations better than simple rounding?",
        notes=NOTES,
        paper_seeds=5,
        arms=tuple(arms),
        figures=(
            "sweep:size/entropy,test/accuracy",
            "matched:size/entropy,test/accuracy",
            "sweep:size/unique_weights,test/accuracy",
            f"deviations:{arms[0].name}",
        ),
    )
