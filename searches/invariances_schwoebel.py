"""Are invariances also found when both ends of every component of the motion are free?

Fourteen numbers instead of six. The schedule of `paper` scale depends on the number of images, 312,
1250, 5000, 20000 or 60000:

    tuneparts search invariances_schwoebel --scale paper --set num_train=312

Mlodozeniec et al. (2023, I.4) use the parametrisation of Schwoebel et al. (2022) on MNIST and
rotated MNIST; their appendix G has six largest motions instead, as `invariances` and
`rotated_mnist` have. They do not state iterations: these are the steps in which Schwoebel et al.
train the net, hyperparameters by Adam at 1e-3 as printed. Those authors have 90 to 120 samples, 750
to 1,200 inducing features that are learnt, and predict with their process; here 20 samples, 1,000
inducing features at training examples, and predictions of the net. Both ends start 0.02 from the
identity. At `cpu` scale: 1,000 images of 14 x 14 pixels, 1,200 iterations, 4 samples, equal reach.
"""

import math

import tuneparts as tp
from studies import after_question, digits, on_gpus, reach
from studies.comparison import Comparison

ITERATIONS = {312: 6400, 1250: 19_200, 5000: 20_000, 20_000: 40_000, 60_000: 30_000}
TURNED = {"theta_min": {"rotation": -math.pi}, "theta_max": {"rotation": math.pi}}
check = digits.check


def search(scale: tp.Scale, *, num_train: int = 5000) -> tp.Search:
    """Three methods that learn both ends from so many images, references, and retrained nets."""
    if num_train not in ITERATIONS:
        raise tp.ConfigError(f"`num_train` = {num_train}: steps are known for {list(ITERATIONS)}.")
    steps = 2 * scale.pick(smoke=10, cpu=1200, paper=ITERATIONS[num_train])
    num = scale.pick(smoke=100, cpu=1000, paper=num_train)
    samples = digits.samples(scale)
    setting = Comparison(
        {
            **digits.mnist(scale, num_train=num, num_val=0),
            "hypers": {"affine": {"kind": "schwoebel"}, **samples},
            "steps": steps,
            "interval": steps // 5,
        },
        samples,
        reach=None if scale is tp.Scale.PAPER else 18.0,
    )
    inducing = scale.pick(smoke=10, cpu=100, paper=min(num_train, 1000))
    learners = {
        "partitioned": setting.at_rate(tp.Partitioned.published()),
        "validation": setting.at_rate(tp.ValidationSet()),
        "last_layer": setting.at_rate(tp.LastLayer(num_inducing=inducing)),
    }
    oracle = {"affine": {"kind": "schwoebel", **TURNED}, **samples}
    arms = {
        **learners,
        "none": tp.Standard(train_on="all", hypers=[]),
        "oracle": tp.Standard(train_on="all", hypers=oracle),
        **setting.retrained(["partitioned", "last_layer"]),
    }
    return tp.Search(
        **setting.shared,
        notes=after_question(__doc__) + reach.listed(learners),
        compare=("partitioned", "validation"),
        references=("none", "oracle"),
        seeds=scale.pick(smoke=1, cpu=3, paper=5),
        arms=on_gpus(scale, 0.5, arms),
        figures=("scores", "accuracy", "hypers", "samples"),
    )
