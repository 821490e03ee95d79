"""Is the best form of partitioned training as good as validation-set optimisation, on MNIST?

As `partition_best`, with the form that was fixed there on digits.
"""

from studies import mnist
from studies.comparison import Comparison
from studies.forms import verdict
from tuneparts.search.arm import Resources
from tuneparts.search.spec import Scale, Search

NOTES = """
Setting and steps of `random_vs_partitioned_mnist`, arms of `partition_best`. Nothing was tuned on
MNIST. More replicates take `tuneparts extend`.
"""


def search(scale: Scale) -> Search:
    """Four arms at the same steps, on all data but the test."""
    steps = scale.pick(smoke=40, cpu=2400, paper=60_000)
    comparison = Comparison(
        shared={
            "steps": steps,
            "interval": steps // 4,
            "net": mnist.net(scale),
            "batch_size": scale.pick(smoke=20, cpu=50, paper=200),
            "optimiser": {"lr": scale.pick(smoke=3e-3, cpu=3e-3, paper=1e-3)},
        },
        samples=mnist.samples(scale),
        resources=Resources(gpus=scale.pick(smoke=0, cpu=0, paper=0.5)),
    )
    return verdict(
        comparison,
        name="partition_best_mnist",
        notes=NOTES,
        scale=scale,
        data=mnist.rotated(scale),
    )
