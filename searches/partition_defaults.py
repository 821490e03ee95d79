"""Does it matter what a subnetwork reads for the weights that it does not have?

Zeros or initial values, in a net with batch normalisation and in one without any norm.
"""

from tuneparts.data.config import Data
from tuneparts.methods.partitioned import Partitioned
from tuneparts.nets import DigitsCnn, MnistCnn, WideResNet
from tuneparts.search.arm import Arm, Resources
from tuneparts.search.spec import Scale, Search

NOTES = """
Mlodozeniec et al. (2023, appendix I) find that zero and initial defaults make no difference in nets
with normalisation layers, and use initial values in FixUp nets, which have none. The nets and
settings of that comparison are not stated. At `cpu` scale: rotated digits, a wide ResNet of ten
layers with 8, 16 and 32 channels and batch normalisation, and a small CNN without norms; at
`paper` scale (a choice) rotated MNIST, WRN-16-1 and the CNN of their Table 9.
"""


def search(scale: Scale) -> Search:
    """Two nets, two defaults."""
    steps = scale.pick(smoke=20, cpu=2400, paper=60_000)
    normed = scale.pick(
        smoke=WideResNet(depth=10, width=0.25),
        cpu=WideResNet(depth=10, width=0.5),
        paper=WideResNet(depth=16, width=1),
    )
    plain = scale.pick(smoke=DigitsCnn(), cpu=DigitsCnn(), paper=MnistCnn())
    config = Partitioned(
        steps=steps,
        interval=steps // 5,
        batch_size=scale.pick(smoke=20, cpu=50, paper=200),
        optimiser={"lr": scale.pick(smoke=0.006, cpu=0.006, paper=0.001)},
        hypers={"affine": {}, "samples": scale.pick(smoke=2, cpu=4, paper=20)},
        hyper_lr=scale.pick(smoke=36 / steps, cpu=36 / steps, paper=1e-3),
    )
    return Search(
        name="partition_defaults",
        question="Does it matter what a subnetwork reads for the weights that it does not have?",
        notes=NOTES,
        scale=scale,
        data=scale.pick(
            smoke=Data(name="digits", rotated=True, num_train=200),
            cpu=Data(name="digits", rotated=True),
            paper=Data(name="mnist", rotated=True),
        ),
        metric="lml/per_example",
        steps=steps,
        seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2, 3, 4), paper=(0, 1, 2)),
        arms=tuple(
            Arm(
                name=f"{kind}_{defaults}",
                config=config.replaced({"net": net, "defaults": defaults}),
                resources=Resources(gpus=scale.pick(smoke=0, cpu=0, paper=0.5)),
            )
            for kind, net in (("normed", normed), ("plain", plain))
            for defaults in ("zero", "initial")
        ),
        figures=("scores", "accuracy", "hypers"),
    )
