"""Can the first layers of a net be learnt as hypers, by data that the rest has not seen?

Leading layers are shared by all subnetworks and moved by hyper steps only. One arm for each number
of such layers, from none.
"""

from studies import mnist
from tuneparts.methods.baselines.config import Standard
from tuneparts.methods.partitioned import Partitioned
from tuneparts.search.arm import Arm, Resources
from tuneparts.search.spec import Scale, Search

NOTES = """
Mlodozeniec et al. (2023) name feature extractors among the hypers that their objective can learn;
the setting is in a part of the paper that was not at hand, so that data, net and numbers are
choices. Here: upright MNIST, the CNN of their Table 9 (`paper`) or a small one, three chunks of 80,
10 and 10 per cent, hypers by Adam at 1e-3 at `paper` scale. The rate of the layers that are hypers
is that of the weights at the others, because they have as far to go.
"""
check = mnist.check


def search(scale: Scale) -> Search:
    """None, one or two convolutions, or all but the last layer, as a hyper."""
    steps = scale.pick(smoke=20, cpu=2400, paper=60_000)
    lr = scale.pick(smoke=3e-3, cpu=3e-3, paper=1e-3)
    shared = {
        "steps": steps,
        "interval": steps // 5,
        "net": mnist.net(scale),
        "batch_size": scale.pick(smoke=20, cpu=50, paper=200),
        "optimiser": {"lr": lr},
    }
    resources = Resources(gpus=scale.pick(smoke=0, cpu=0, paper=0.5))
    return Search(
        name="feature_extractors",
        question="Can the first layers of a net be learnt as hypers?",
        notes=NOTES,
        scale=scale,
        data=mnist.rotated(
            scale, num_train=scale.pick(smoke=100, cpu=1000, paper=None), num_val=0
        ).replaced({"rotated": False}),
        metric="lml/per_example",
        steps=steps,
        seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2), paper=(0, 1, 2)),
        arms=(
            *(
                Arm(
                    name=f"layers_{num}",
                    config=Partitioned(**shared, num_extractor_layers=num, hyper_lr=lr),
                    resources=resources,
                )
                for num in (0, 1, 2, 4)
            ),
            Arm(name="none", config=Standard(**shared, train_on="all"), resources=resources),
        ),
        figures=("scores", "accuracy"),
    )
