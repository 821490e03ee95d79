"""Does one partitioned run find the augmentation, and does its retrained net beat random search?

Handwritten digits, each turned by its own angle over the full circle: a net that knows this
needs fewer examples. The small version of `random_vs_partitioned`, on data that is always there.
"""

import math

import tuneparts as tp

NOTES = """
Mlodozeniec et al. (2023, Figure 9) train 200 nets on rotated MNIST at random augmentation ranges
and compare with single partitioned runs. Here: 1,297 digits of 8 x 8 pixels, a net of 13,706
parameters, 4 augmentation samples, ranges that a practitioner would choose (the paper's go up to
3). Random search trains on 997 digits and selects on 300; the others use all 1,297. Outside `paper`
scale its two trials cost as much as one partitioned run and its retrained net; more find more.
"""


def search(scale: tp.Scale) -> tp.Search:
    steps = scale.pick(smoke=20, cpu=2400, paper=20_000)
    tops = dict.fromkeys(tp.Affine.NAMES, 0.5) | {"rotation": math.pi}
    ranges = {name: tp.Uniform(0.0, high) for name, high in tops.items()}
    trials = tp.RandomSearch(scale.pick(smoke=2, cpu=2, paper=200))
    return tp.Search(
        notes=NOTES,
        data=tp.data.Digits(rotated=True, num_val=300),
        net=tp.nets.DigitsCnn(),
        hypers=tp.Affine(),
        steps=steps,
        interval=scale.pick(smoke=5, cpu=300, paper=2000),
        batch_size=50,
        optimiser=tp.Adam(lr=0.006),
        seeds=scale.pick(smoke=1, cpu=tuple(range(10, 18)), paper=5),
        arms={
            "partitioned": tp.Partitioned.published(hyper_lr=36 / steps),
            "random": tp.Arm(config=tp.Standard(), algorithm=trials, space=ranges, packed=2),
            "none": tp.Standard(train_on="all", hypers=[]),
            "partitioned_retrained": tp.Standard(train_on="all", hypers_from="partitioned"),
        },
        compare=("partitioned_retrained", "random"),
        references=("none",),
        answer="found",
        found={"hyper/rotation": math.pi},
        score_test_always=True,
        figures=("accuracy", "hypers", "samples", "projections", "best_of_n", "calibration"),
    )
