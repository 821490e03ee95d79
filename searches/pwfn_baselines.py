"""At the same size, is a net of learnt deviations better than one that was simply rounded?

And if so, is it because each weight has a deviation of its own? Two controls say: deviations
permuted among the weights, and one deviation for all.
"""

from typing import Any

from tuneparts.baselines.standard import StandardConfig
from tuneparts.data.config import DataConfig
from tuneparts.models import DigitsCnn, ResNet18
from tuneparts.pwfn.config import PwfnConfig
from tuneparts.search.spec import Arm, Resources, Scale, Search

NOTES = """
Subia-Waud & Dasmahapatra (2023) compare final accuracies with published ones. Here every arm
starts from the same pretrained net, seed by seed, trains for the same number of passes, and is
compared with those of about its own size: entropy in bits a weight, or distinct values. Arms
called `once` train on as usual and round at the end; all others fix in the same ten rounds. `wfn`
is Weight Fixing Networks (2022): clusters by relative distance, and a term of the loss that draws
free weights to them; `wfn_unpulled` leaves out the term. At `paper` scale WFN trains as its authors
do (Adam at 2e-5, gradients clipped at 0.5, their ten fractions); at the other scales it has the
optimiser of all other arms, so that only the method differs. At `cpu` scale: 5,000 rotated MNIST
digits at 14 x 14 pixels and a net of 6,218 weights without BatchNorm, on which rounding once to
the grid of 1/16 costs about three points.
"""


def search(scale: Scale) -> Search:
    """The method at several strengths, its controls, and the baselines at several sizes."""
    passes = scale.pick(smoke=20, cpu=1600, paper=15_234)
    pretrain = scale.pick(smoke=0.5, cpu=0.5, paper=10_500 / 15_234)
    optimiser = scale.pick(
        smoke={"lr": 0.005},
        cpu={"lr": 0.005, "schedule": "cosine"},
        paper={"kind": "sgd", "lr": 0.1, "weight_decay": 5e-4, "schedule": "cosine"},
    )
    shared = {
        "passes": passes,
        "interval": passes // 4,
        "net": scale.pick(
            smoke=DigitsCnn(), cpu=DigitsCnn(channels=(8, 16), hidden=32), paper=ResNet18()
        ),
        "batch_size": scale.pick(smoke=20, cpu=50, paper=256),
        "optimiser": optimiser,
    }
    fixing = {
        "pretrain": pretrain,
        "augmentation": scale.pick(smoke={}, cpu={}, paper={"crop_padding": 4, "flip": True}),
        "recalibrate": scale.pick(smoke=2, cpu=0, paper=50),
    }
    resources = scale.pick(smoke=Resources(), cpu=Resources(), paper=Resources(gpus=0.5))

    def arm(name: str, **changes: Any) -> Arm:
        config = PwfnConfig(**shared, **fixing, **changes)
        return Arm(name=name, config=config, resources=resources)

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
                f"once_kmeans_{count}",
                quantiser={"kind": "kmeans", "num_values": count},
                fractions=(1.0,),
            )
            for count in scale.pick(smoke=(16,), cpu=(64, 32, 16), paper=(256, 128, 64))
        ),
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
    if scale is not Scale.PAPER:  # standard training has no crops and flips
        arms.append(Arm(name="float", config=StandardConfig(**shared), resources=resources))
    return Search(
        name="pwfn_baselines",
        question="At the same size, are learnt deviations better than simple rounding?",
        notes=NOTES,
        scale=scale,
        data=scale.pick(
            smoke=DataConfig(name="digits", num_train=200, num_val=100),
            cpu=DataConfig(
                name="mnist", rotated=True, pool=2, num_train=5000, num_val=1000, num_test=5000
            ),
            paper=DataConfig(name="cifar10", num_val=5000),
        ),
        metric="val/accuracy",
        passes=passes,
        seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2, 3, 4), paper=(0, 1, 2, 3, 4)),
        arms=tuple(arms),
        figures=("sweep:size/entropy,test/accuracy", "sweep:size/unique_weights,test/accuracy"),
    )
