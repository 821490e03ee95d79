"""Are invariances also found when both ends of every component of the motion are free?

Rotated MNIST in the parametrisation of Schwoebel et al.: fourteen numbers instead of six. At
`paper` scale the number of images is a keyword, because the schedule depends on it:

    for n in 312 1250 5000 20000 60000; do
        tuneparts search invariances_schwoebel --scale paper --set num_train=$n
    done
"""

import math
from typing import Any

from studies import mnist, reach
from studies.comparison import Comparison
from tuneparts.core.errors import ConfigError
from tuneparts.methods.baselines.config import LastLayer, Standard, ValidationSet
from tuneparts.methods.partitioned import Partitioned
from tuneparts.search.arm import Arm, Resources
from tuneparts.search.spec import Scale, Search

NOTES = """
Mlodozeniec et al. (2023, I.4) use the parametrisation of Schwoebel et al. (2022) on MNIST and
rotated MNIST; their appendix G has six largest motions instead, as `invariances` and
`rotated_mnist` have. They do not state iterations: these are the steps in which Schwoebel et al.
train the net (6,400 to 40,000 by size), hypers by Adam at 1e-3 as printed. Those authors have 90 to
120 samples, 750 to 1,200 inducing features that are learnt, and predict with their process; here 20
samples, 1,000 inducing features at training examples, and predictions of the net. Both ends start
0.02 from the identity. At `cpu` scale: 1,000 images of 14 x 14 pixels, 1,200 iterations, 4 samples,
equal reach.
"""
ITERATIONS = {312: 6400, 1250: 19_200, 5000: 20_000, 20_000: 40_000, 60_000: 30_000}
TURNED = {"theta_min": {"rotation": -math.pi}, "theta_max": {"rotation": math.pi}}
check = mnist.check


def search(scale: Scale, *, num_train: int = 5000) -> Search:
    """Three methods that learn both ends, references, and retrained nets.

    Args:
        scale: size of the question.
        num_train: images at `paper` scale.
    """
    if num_train not in ITERATIONS:
        raise ConfigError(
            f"steps are known for {', '.join(map(str, ITERATIONS))} images, but `num_train` is "
            f"{num_train}. Use one of these."
        )
    steps = 2 * scale.pick(smoke=10, cpu=1200, paper=ITERATIONS[num_train])
    resources = Resources(gpus=scale.pick(smoke=0, cpu=0, paper=0.5))
    samples = mnist.samples(scale)
    setting = Comparison(
        shared={
            "steps": steps,
            "interval": steps // 5,
            "net": mnist.net(scale),
            "batch_size": scale.pick(smoke=20, cpu=50, paper=200),
            "optimiser": {"lr": scale.pick(smoke=3e-3, cpu=3e-3, paper=1e-3)},
        },
        samples=samples,
        reach=None if scale is Scale.PAPER else 18.0,
        resources=resources,
    )
    hypers = {"affine": {"kind": "schwoebel"}, **samples}
    learnt = {**setting.shared, "hypers": hypers}
    inducing = scale.pick(smoke=10, cpu=100, paper=1000 if num_train > 1000 else num_train)
    learners = (
        _arm("partitioned", setting.at_rate(Partitioned(**learnt)), resources),
        _arm("validation", setting.at_rate(ValidationSet(**learnt)), resources),
        _arm(
            "last_layer",
            setting.at_rate(LastLayer(**learnt, num_inducing=inducing)),
            resources,
        ),
    )
    given = Standard(**learnt, train_on="all")
    oracle = given.replaced({"hypers": {"affine": {"kind": "schwoebel", **TURNED}, **samples}})
    return Search(
        name="invariances_schwoebel",
        question="Are invariances also found when both ends of every component are free?",
        notes=f"{NOTES}\n{reach.listed(learners)}\n",
        scale=scale,
        data=mnist.rotated(
            scale,
            num_train=scale.pick(smoke=100, cpu=1000, paper=num_train),
            num_val=0,
        ),
        metric="val/accuracy",
        compare=("partitioned", "validation"),
        references=("none", "oracle"),
        steps=steps,
        seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2), paper=(0, 1, 2, 3, 4)),
        arms=(
            *learners,
            _arm("none", Standard(**setting.shared, train_on="all"), resources),
            _arm("oracle", oracle, resources),
            *(
                _arm(f"retrained_{leader}", given, resources, follows=leader)
                for leader in ("partitioned", "last_layer")
            ),
        ),
        figures=("scores", "accuracy", "hypers", "samples"),
    )


def _arm(name: str, config: Any, resources: Resources, **fields: Any) -> Arm:
    return Arm(name=name, config=config, resources=resources, **fields)
