"""At the same size, is a net of learnt deviations better than one that was simply rounded?

And if so, is it because each weight has its own deviation? Two controls say: deviations permuted
among the weights, and one deviation for all.

Subia-Waud & Dasmahapatra (2023) compare final accuracies with published ones. Here every arm starts
from the same pretrained net, seed by seed, trains for the same steps, and is compared with those of
its size: entropy in bits a weight (`matched` interpolates each family's accuracy there, seed by
seed). Two references bound all arms: `float` is never rounded and trains as long by its own
schedule; `free` has the schedule of the rounds and no fixing, so that what it loses against `float`
is due to the schedule and not to a quantiser. Arms called `once` train on as usual and round at the
end; all others fix in the same ten rounds. `int8` and `int4` are what a practitioner would use:
integers with a scale per channel, after training or, as `aware`, during it. `wfn` is Weight Fixing
Networks (2022) after its released code: clusters by relative distance, and a term of the loss that
draws free weights to them, at `paper` scale with its authors' training (Adam at 2e-5, gradients
clipped at 0.5, their ten fractions). The net of `cpu` scale has no BatchNorm and is pretrained for
40 epochs. The spread of deviations (`fixing/spread`, the 90th over the 10th percentile) says how
much there is to permute: near 1, the controls are the method itself.
"""

from functools import partial
from typing import Any

import tuneparts as tp
from studies.fixing import Fixing


def search(scale: tp.Scale) -> tp.Search:
    setting = Fixing(scale, converged=True)
    arm = partial(setting.config, recalibrate=scale.pick(smoke=2, cpu=0, paper=50))
    arms: dict[str, tp.Method] = {}
    for power in scale.pick(smoke=(-1,), cpu=(-3, -1, 1), paper=(-11, -7, -3)):
        for control in ("learnt", "permuted", "constant"):
            name = f"pwfn_{control}_alpha_{power}".replace("-", "m")
            arms[name] = arm(sigma={"alpha": 2.0**power, "control": control})
    for bits in scale.pick(smoke=(4,), cpu=(5, 4, 3), paper=(7, 6, 5, 4)):
        nearest = {"kind": "nearest", "bits": bits}
        arms[f"nearest_bits_{bits}"] = arm(quantiser=nearest)
        arms[f"once_bits_{bits}"] = arm(quantiser=nearest, fractions=(1.0,))
    arms["powers_of_two"] = arm(quantiser={"kind": "nearest", "max_order": 1})
    for count in scale.pick(smoke=(16,), cpu=(64, 32, 16), paper=(256, 128, 64)):
        kmeans = {"kind": "kmeans", "num_values": count}
        arms[f"kmeans_{count}"] = arm(quantiser=kmeans)
        arms[f"once_kmeans_{count}"] = arm(quantiser=kmeans, fractions=(1.0,))
    for bits in scale.pick(smoke=(4,), cpu=(8, 4), paper=(8, 4)):
        for suffix, aware in (("", False), ("_aware", True)):
            integers = {"kind": "uniform", "bits": bits, "aware": aware}
            arms[f"int{bits}{suffix}"] = arm(quantiser=integers, fractions=(1.0,))
    arms["free"] = arm(quantiser={"kind": "free"})
    as_authors: dict[str, Any] = {
        "finetune": tp.Adam(lr=2e-5),
        "clip": 0.5,
        "fractions": (0.3, 0.6, 0.8, 0.9, 0.95, 0.975, 0.99, 0.9975, 0.999, 1.0),
    }
    for name, ratio, deltas in (
        ("wfn", 0.4, scale.pick(smoke=(10,), cpu=(10, 15, 25), paper=(10, 15))),
        ("wfn_unpulled", 0.0, scale.pick(smoke=(), cpu=(15,), paper=())),
    ):
        for thousandths in deltas:
            arms[f"{name}_delta_{thousandths}"] = arm(
                quantiser={"kind": "wfn", "delta": thousandths / 1000, "ratio": ratio},
                **(as_authors if scale is tp.Scale.PAPER else {}),
            )
    arms["float"] = setting.unfixed()
    return setting.search(
        __doc__,
        arms,
        paper_seeds=5,
        figures=(
            "sweep:size/entropy,test/accuracy",
            "matched:size/entropy,test/accuracy",
            "sweep:size/unique_weights,test/accuracy",
            f"deviations:{next(iter(arms))}",
        ),
    )
