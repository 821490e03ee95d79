"""Which method learns the invariance that is in the data, and none that is not, from few images?

Rotated MNIST, a small subset. Other sizes and the upright images are the same search with other
data, and `tuneparts ranks RUN RUN ... --plot sizes.html` draws them over the sizes:

    tuneparts search invariances --set data.num_train=500 --set data.rotated=false

Mlodozeniec et al. (2023, Table 1 and Figure 3) compare standard training, Augerino, differentiable
Laplace, last-layer marginal likelihood and partitioned networks on MNIST, CIFAR-10
(`invariances_cifar`) and their rotated variants, on subsets of increasing size, with 20
augmentation samples; their figures were not at hand. At `cpu` scale: 14 x 14 pixels, a net of
15,114 weights, batches of 50, 4 samples. Laplace takes its Kronecker factors from a running mean
over batches instead of all data; last-layer marginal likelihood has inducing features at training
examples instead of learnt ones, and predicts with the net. Methods without a validation set train
on the 500 validation images too; random search selects on them. On upright images `oracle` still
rotates, and is then the wrong invariance on purpose. The six ranges are those of `lila` at all
scales; the paper has the parametrisation of Schwoebel et al. on MNIST (`invariances_schwoebel`).
"""

import tuneparts as tp
from studies import after_question, digits, on_gpus, reach
from studies.comparison import TIGHT_RANGE, Comparison, space

check = digits.check


def search(scale: tp.Scale) -> tp.Search:
    steps = scale.pick(smoke=20, cpu=2400, paper=60_000)
    sizes = {
        "num_train": scale.pick(smoke=100, cpu=1000, paper=5000),
        "num_val": scale.pick(smoke=50, cpu=500, paper=1000),
    }
    setting = Comparison(
        {**digits.mnist(scale, **sizes), "steps": steps, "interval": steps // 5},
        digits.samples(scale),
        reach=None if scale is tp.Scale.PAPER else 18.0,
        evidence_every=scale.pick(smoke=20, cpu=20, paper=30),
    )
    trials = tp.RandomSearch(scale.pick(smoke=1, cpu=8, paper=50))
    sources = ["partitioned", "validation", "laplace", "last_layer", "random_tight"]
    arms: dict[str, tp.Method | tp.Arm] = {
        **setting.learners(),
        **setting.references(),
        "random_tight": tp.Standard().searched_by(trials, space(TIGHT_RANGE)),
        **setting.retrained(sources),
    }
    return tp.Search(
        **setting.shared,
        hypers=setting.hypers,
        notes=after_question(__doc__) + reach.listed(setting.learners()),
        compare=("partitioned", "validation"),
        references=("none", "oracle"),
        seeds=scale.pick(smoke=1, cpu=3, paper=5),
        arms=on_gpus(scale, 0.5, arms),
        figures=("scores", "accuracy", "hypers", "samples", "calibration"),
    )
