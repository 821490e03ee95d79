"""Does one partitioned run find that MNIST was rotated?

Mlodozeniec et al. (2023, sections G and I.4) train the CNN of their Table 9 on all 60,000 rotated
images with 20 augmentation samples, batches of 200, Adam at 1e-3 for weights and hyperparameters,
chunks of 80, 10 and 10 per cent; the number of iterations is not stated (`paper` scale: 30,000, a
choice). At `cpu` scale: 5,000 training and 1,000 validation images of 14 x 14 pixels, a net of
15,114 weights, batches of 100, 4 samples, 2,000 iterations, and the hyper rate scaled so that rate
times steps stays near 20. Random search draws from ranges that a practitioner would choose; the
paper's go up to 3.
"""

import math

import tuneparts as tp
from studies import after_question, digits, on_gpus
from studies.comparison import TIGHT_RANGE, space

check = digits.check


def search(scale: tp.Scale) -> tp.Search:
    steps = scale.pick(smoke=20, cpu=4000, paper=60_000)
    hyper_lr = scale.pick(smoke=40 / steps, cpu=40 / steps, paper=1e-3)
    trials = tp.RandomSearch(scale.pick(smoke=2, cpu=4, paper=200))
    batch_size = scale.pick(smoke=20, cpu=100, paper=200)
    arms: dict[str, tp.Method | tp.Arm] = {
        "partitioned": tp.Partitioned.published(hyper_lr=hyper_lr),
        "random": tp.Standard().searched_by(trials, space(TIGHT_RANGE)),
        "none": tp.Standard(train_on="all", hypers=[]),
        "partitioned_retrained": tp.Standard(train_on="all", hypers_from="partitioned"),
    }
    return tp.Search(
        **{**digits.mnist(scale), "batch_size": batch_size},
        hypers={"affine": {}, **digits.samples(scale)},
        notes=after_question(__doc__),
        steps=steps,
        compare=("partitioned", "random"),
        references=("none",),
        answer="found",
        found={"hyper/rotation": math.pi},
        seeds=scale.pick(smoke=1, cpu=3, paper=3),
        arms=on_gpus(scale, 0.5, arms),
        figures=("scores", "accuracy", "hypers", "samples", "projections", "best_of_n"),
    )
