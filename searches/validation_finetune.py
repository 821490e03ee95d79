"""Is it better to hold data out and give it back, or never to hold any out?

Validation-set optimisation at several shares, with and without fine-tuning on all data, against
partitioned training with and without a release, at equal steps.
"""

from typing import Any

from tuneparts.data.config import Data
from tuneparts.methods.baselines.config import ValidationSet
from tuneparts.methods.partitioned import Partitioned
from tuneparts.methods.partitioned.config import ReleasedConfig
from tuneparts.nets import DigitsCnn, FixupResNet
from tuneparts.search.arm import Arm, Resources
from tuneparts.search.spec import Scale, Search
from tuneparts.training.config import Method

NOTES = """
Mlodozeniec et al. (2023, Table 2 and I.4): FixUp ResNet-14 on 20,000 CIFAR-10 images, the affine
parametrisation of Benton et al. (2020), 80,000 iterations with SGD at 0.1 annealed by a cosine over
the first 60,000; fine-tuning with SGD at 0.01 or 0.001, of which the paper reports the better by
test accuracy. Here both rates are arms of their own and none is chosen by test data. The shares
held out and the figures of the paper were not at hand. Hypers have its rate of 1e-3, and weight
decay grows for earlier partitions with the square root. An iteration is two steps; fine-tuning and
the release take the last quarter of the steps, without them the rate
stays at its end for as long. At `cpu` scale: 1,297 rotated digits, a net of 13,706 weights, Adam at
0.006 and fine-tuning by Adam at 0.006 or 0.0006, whose ratio to the rate before is closer to the
paper's than its absolute values would be.
"""
LAST = 0.25


def search(scale: Scale) -> Search:
    """Shares of 10, 20 and 40 per cent; two rates of fine-tuning at each."""
    steps = scale.pick(smoke=20, cpu=2400, paper=160_000)
    is_paper = scale is Scale.PAPER
    optimiser: dict[str, Any] = {"lr": 0.006}
    if is_paper:
        optimiser = {
            "kind": "sgd",
            "lr": 0.1,
            "schedule": "cosine",
            "final_lr": 0.001,
            "weight_decay": 1e-4,
        }
    shared = {
        "steps": steps,
        "interval": steps // 10,
        "net": FixupResNet(depth=14) if is_paper else DigitsCnn(),
        "batch_size": scale.pick(smoke=20, cpu=50, paper=250),
        "optimiser": optimiser,
        "hypers": {
            "affine": {"kind": "benton" if is_paper else "lila"},
            "samples": scale.pick(smoke=2, cpu=4, paper=20),
            "eval_samples": scale.pick(smoke=2, cpu=8, paper=20),
        },
    }
    chunks = {
        **shared,
        "defaults": "initial" if is_paper else "zero",
        "weight_decay_scaling": "sqrt" if is_paper else "reciprocal",
    }
    # Without a last stage the rate is annealed over as many steps, and then stays.
    if is_paper:
        early = {**optimiser, "annealed_over": 1 - LAST}
        shared, chunks = {**shared, "optimiser": early}, {**chunks, "optimiser": early}
    staged = {"optimiser": optimiser}
    whole, shorter = (1e-3, 1e-3) if is_paper else (36 / steps, 36 / steps / (1 - LAST))
    rates = (0.01, 0.001) if is_paper else (0.006, 0.0006)
    late = [
        {
            "fraction": LAST,
            "optimiser": {**optimiser, "lr": rate, "schedule": "constant"},
        }
        for rate in rates
    ]
    configs: dict[str, Method] = {
        "partitioned": Partitioned(**chunks, hyper_lr=whole),
        "released_fast": ReleasedConfig(**{**chunks, **staged}, hyper_lr=shorter, release=late[0]),
        "released_slow": ReleasedConfig(**{**chunks, **staged}, hyper_lr=shorter, release=late[1]),
    }
    for percent in scale.pick(smoke=(20,), cpu=(10, 20, 40), paper=(10, 20, 40)):
        held = {**shared, "holdout": percent / 100}
        configs[f"validation_{percent}"] = ValidationSet(**held, hyper_lr=whole)
        for speed, stage in zip(("fast", "slow"), late, strict=True):
            configs[f"validation_{percent}_{speed}"] = ValidationSet(
                **{**held, **staged}, hyper_lr=shorter, finetune=stage
            )
    return Search(
        name="validation_finetune",
        question="Is it better to hold data out and give it back, or never to hold any out?",
        notes=NOTES,
        scale=scale,
        data=Data(
            name="cifar10" if is_paper else "digits",
            rotated=not is_paper,
            num_train=scale.pick(smoke=200, cpu=None, paper=20_000),
        ),
        metric="val/accuracy",
        compare=("released_slow", "validation_20_slow"),
        steps=steps,
        seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2, 3, 4), paper=(0, 1, 2)),
        arms=tuple(
            Arm(name=name, config=config, resources=Resources(gpus=1 if is_paper else 0))
            for name, config in configs.items()
        ),
        score_test_always=True,
        figures=("scores", "accuracy", "hypers"),
    )
