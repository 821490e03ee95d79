"""Is it better to hold data out and give it back, or never to hold any out?

Mlodozeniec et al. (2023, Table 2 and I.4): FixUp ResNet-14 on 20,000 CIFAR-10 images, the affine
parametrisation of Benton et al. (2020), 80,000 iterations with SGD at 0.1 annealed by a cosine over
the first 60,000; fine-tuning with SGD at 0.01 or 0.001, of which the paper reports the better by
test accuracy. Here both rates are arms and none is chosen by test data. The shares held out and the
figures of the paper were not at hand. Hyperparameters have its rate of 1e-3, and weight decay grows
for earlier partitions with the square root. An iteration is two steps; fine-tuning (`released_...`
of partitioned training) takes the last quarter of the steps, without it the rate stays at its end
for as long. At `cpu` scale: 1,297 rotated digits, a net of 13,706 weights, Adam at 0.006 and
fine-tuning at 0.006 or 0.0006, whose ratio to the rate before is closer to the paper's.
"""

from typing import Any

import tuneparts as tp
from studies import after_question, on_gpus

LAST = 0.25


def search(scale: tp.Scale) -> tp.Search:
    steps = scale.pick(smoke=20, cpu=2400, paper=160_000)
    is_paper = scale is tp.Scale.PAPER
    sgd = tp.Sgd(lr=0.1, schedule="cosine", final_lr=0.001, weight_decay=1e-4)
    optimiser: tp.Adam | tp.Sgd = sgd if is_paper else tp.Adam(lr=0.006)
    # Without a last stage the rate is annealed over as many steps, and then stays.
    early = optimiser.replaced({"annealed_over": 1 - LAST}) if is_paper else optimiser
    whole, shorter = (1e-3, 1e-3) if is_paper else (36 / steps, 36 / steps / (1 - LAST))
    rates = {"fast": 0.01, "slow": 0.001} if is_paper else {"fast": 0.006, "slow": 0.0006}
    plain: dict[str, Any] = {"optimiser": early, "hyper_lr": whole}
    late: dict[str, Any] = {
        speed: {
            "optimiser": optimiser,
            "hyper_lr": shorter,
            "finetune": {
                "fraction": LAST,
                "optimiser": optimiser.replaced({"lr": lr, "schedule": "constant"}),
            },
        }
        for speed, lr in rates.items()
    }
    chunks = {"defaults": "initial", "weight_decay_scaling": "sqrt"} if is_paper else {}
    arms: dict[str, tp.Method] = {
        "partitioned": tp.Partitioned.published(**chunks, **plain),
        "released_fast": tp.Partitioned.published(**chunks, **late["fast"]),
        "released_slow": tp.Partitioned.published(**chunks, **late["slow"]),
    }
    for percent in scale.pick(smoke=(20,), cpu=(10, 20, 40), paper=(10, 20, 40)):
        name, held = f"validation_{percent}", percent / 100
        arms[name] = tp.ValidationSet(holdout=held, **plain)
        for speed, fields in late.items():
            arms[f"{name}_{speed}"] = tp.ValidationSet(holdout=held, **fields)
    num_train = scale.pick(smoke=200, cpu=None, paper=20_000)
    return tp.Search(
        notes=after_question(__doc__),
        data=tp.data.Cifar10(num_train=num_train)
        if is_paper
        else tp.data.Digits(rotated=True, num_train=num_train),
        net=tp.nets.FixupResNet(depth=14) if is_paper else tp.nets.DigitsCnn(),
        hypers={
            "affine": {"kind": "benton" if is_paper else "lila"},
            "samples": scale.pick(smoke=2, cpu=4, paper=20),
            "eval_samples": scale.pick(smoke=2, cpu=8, paper=20),
        },
        steps=steps,
        batch_size=scale.pick(smoke=20, cpu=50, paper=250),
        metric="val/accuracy",
        compare=("released_slow", "validation_20_slow"),
        seeds=scale.pick(smoke=1, cpu=5, paper=3),
        arms=on_gpus(scale, 1, arms),
        score_test_always=True,
        figures=("scores", "accuracy", "hypers"),
    )
