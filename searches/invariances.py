"""Which method learns the invariance that is in the data, and none that is not, from few images?

Rotated MNIST, a small subset; every method that learns augmentation ranges, and random search over
them. Other sizes and the upright images are the same search with other data:

    for n in 500 1000 2000 5000 10000; do
        tuneparts search invariances --set data.num_train=$n
        tuneparts search invariances --set data.num_train=$n --set data.rotated=false
    done

`tuneparts ranks RUN RUN ... --plot sizes.html` draws them over the sizes. CIFAR-10, which has nets
and schedules of its own, is `invariances_cifar`.
"""

from studies import mnist, reach
from studies.comparison import TIGHT_RANGE, Comparison, space
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.arm import Arm, Resources
from tuneparts.search.spec import Scale, Search

check = mnist.check
NOTES = """
Mlodozeniec et al. (2023, Table 1 and Figure 3) compare standard training, Augerino, differentiable
Laplace, last-layer marginal likelihood and partitioned networks on MNIST, CIFAR-10 and their
rotated variants, on subsets of increasing size, with 20 augmentation samples; their figures were
not at hand, so none is quoted. At `cpu` scale: 14 x 14 pixels, a net of 15,114 weights, batches of
50, 4 samples, one size at a time (`data.num_train`). Laplace takes its Kronecker factors from a
running mean over batches instead of all data; last-layer marginal likelihood has inducing features
at training examples instead of learnt ones, and predicts with the net. Methods without a
validation set train on the 500 validation images too; random search selects on them. On upright
images `oracle` still rotates, and is then the wrong invariance on purpose. At `paper` scale the
six ranges are those of `lila`, on which methods compare; the paper has the parametrisation of
Schwoebel et al. on MNIST (`invariances_schwoebel`).
"""


def search(scale: Scale) -> Search:
    """Every learning method, the references, tight random search, and retrained nets."""
    steps = scale.pick(smoke=20, cpu=2400, paper=60_000)
    resources = Resources(gpus=scale.pick(smoke=0, cpu=0, paper=0.5))
    arms = Comparison(
        shared={
            "steps": steps,
            "interval": steps // 5,
            "net": mnist.net(scale),
            "batch_size": scale.pick(smoke=20, cpu=50, paper=200),
            "optimiser": {"lr": scale.pick(smoke=3e-3, cpu=3e-3, paper=1e-3)},
        },
        samples=mnist.samples(scale),
        reach=None if scale is Scale.PAPER else 18.0,
        evidence_every=scale.pick(smoke=20, cpu=20, paper=30),
        resources=resources,
    )
    random = Arm(
        name="random_tight",
        config=arms.augmented(),
        algorithm=RandomSearch(num_trials=scale.pick(smoke=1, cpu=8, paper=50)),
        space=space(TIGHT_RANGE),
        resources=resources,
    )
    return Search(
        name="invariances",
        question="Which method learns the invariance in the data, and none else, from few images?",
        notes=f"{NOTES}\n{reach.listed(arms.learners())}\n",
        scale=scale,
        data=mnist.rotated(
            scale,
            num_train=scale.pick(smoke=100, cpu=1000, paper=5000),
            num_val=scale.pick(smoke=50, cpu=500, paper=1000),
        ),
        metric="val/accuracy",
        compare=("partitioned", "validation"),
        references=("none", "oracle"),
        steps=steps,
        seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2), paper=(0, 1, 2, 3, 4)),
        arms=(
            *arms.learners(),
            *arms.references(),
            random,
            *arms.retrained(["partitioned", "validation", "laplace", "last_layer", "random_tight"]),
        ),
        figures=("scores", "accuracy", "hypers", "samples", "calibration"),
    )
