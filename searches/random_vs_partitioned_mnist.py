"""How many random-search trials does one run that learns its augmentation replace, on MNIST?

MNIST images, each turned by its own angle over the full circle. Search algorithms with many
trials against methods that learn the same six ranges in one, at the same steps a trial.
"""

from studies import mnist
from studies.comparison import Comparison
from tuneparts.search.arm import Resources
from tuneparts.search.spec import Scale, Search

check = mnist.check
NOTES = """
Mlodozeniec et al. (2023, Figure 9 and appendix G) train 200 of the CNNs of their Table 9 on 60,000
rotated MNIST images at random augmentation ranges (rotation up to pi, the five others up to 3),
with batches of 200 and 20 augmentation samples in training and testing, and set the test accuracies
beside paths and end points of partitioned runs and beside standard nets retrained at the end
points; the number of iterations is not stated (`paper` scale: 30,000, a choice). At `cpu` scale:
5,000 training and 1,000 validation images of 14 x 14 pixels, 2,000 test images, a net of 15,114
weights, batches of 50, 4 samples in training and 8 in scoring, and a hyper rate scaled to the
shorter run. Trials are selected on validation images that random search does not train on; the
paper shows test accuracies of all trials. The further arms are those of `random_vs_partitioned`.
All learnt ranges start at 0.3. Every replicate draws data anew, for all arms the same. Hyper rates
are as printed at `paper` scale, and of equal reach at the others.
"""


def search(scale: Scale) -> Search:
    """Every arm of the comparison, with the best of each kind retrained."""
    steps = scale.pick(smoke=40, cpu=2400, paper=60_000)
    comparison = Comparison(
        shared={
            "steps": steps,
            "interval": steps // 10,
            "net": mnist.net(scale),
            "batch_size": scale.pick(smoke=20, cpu=50, paper=200),
            "optimiser": {"lr": scale.pick(smoke=3e-3, cpu=3e-3, paper=1e-3)},
        },
        samples=mnist.samples(scale),
        reach=None if scale is Scale.PAPER else 18.0,
        evidence_every=scale.pick(smoke=20, cpu=20, paper=300),
        resources=Resources(gpus=scale.pick(smoke=0, cpu=0, paper=0.5)),
    )
    return comparison.search(
        name="random_vs_partitioned_mnist",
        notes=NOTES,
        scale=scale,
        data=mnist.rotated(scale),
    )
