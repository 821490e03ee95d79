"""How many random-search trials does one run that learns its augmentation replace, on digits?

Handwritten digits, each turned by its own angle over the full circle. Search algorithms with many
trials against methods that learn the same six ranges in one, at the same steps a trial.
"""

from studies.comparison import Comparison
from tuneparts.data.config import Data
from tuneparts.nets import DigitsCnn
from tuneparts.search.spec import Scale, Search

NOTES = """
Mlodozeniec et al. (2023, Figure 9 and appendix G) train 200 nets on 60,000 rotated MNIST images at
random augmentation ranges (rotation up to pi, the five others up to 3), average 20 augmentation
samples in training and testing, and set the test accuracies beside paths and end points of
partitioned runs and beside standard nets retrained at the end points. Here: 1,297 scikit-learn
digits of 8 x 8 pixels, a net of 13,706 weights, 4 samples in training and 8 in scoring, and a hyper
rate scaled to the shorter run. Trials are selected on 300 validation digits that random search
does not train on; the paper shows test accuracies of all trials. Added: ranges that a practitioner
would choose (up to 0.5), TPE, ASHA and PBT on them, validation-set optimisation with and without
fine-tuning, Augerino, Laplace with Kronecker factors, last-layer marginal likelihood, the oracle,
and a partitioned run whose last quarter trains all weights on all data. All learnt ranges start at
0.3, and all learners have the same reach. Every
replicate draws data anew, for all arms the same.
"""


def search(scale: Scale) -> Search:
    """Every arm of the comparison, with the best of each kind retrained."""
    steps = scale.pick(smoke=40, cpu=2400, paper=20_000)
    comparison = Comparison(
        shared={
            "steps": steps,
            "interval": steps // 10,
            "net": DigitsCnn(),
            "batch_size": 50,
            "optimiser": {"lr": 0.006},
        },
        samples={"samples": scale.pick(smoke=2, cpu=4, paper=20), "eval_samples": 8},
    )
    return comparison.search(
        name="random_vs_partitioned",
        notes=NOTES,
        scale=scale,
        data=Data(name="digits", rotated=True, num_val=300),
    )
