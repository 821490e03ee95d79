"""Is the best form of partitioned training as good as validation-set optimisation, on digits?

The form was fixed on other draws of the data by `partition_forms` before this was run. Fresh seeds
and fresh draws judge it, against validation-set optimisation with fine-tuning at its best share of
hyper steps, the published form, and no augmentation.
"""

from studies.comparison import Comparison
from studies.forms import verdict
from tuneparts.data.config import Data
from tuneparts.nets import DigitsCnn
from tuneparts.search.spec import Scale, Search

NOTES = """
Setting and steps of `random_vs_partitioned`. `partitioned_best` has three chunks (0.8, 0.1, 0.1)
but 94 of 100 hidden units in the first partition, mixed batches, joint steps with a fifth of the
batch for the hypers, and a last quarter of ordinary training. `validation_best` has a hyper step
after every fourth weight step and the same last quarter. Every replicate draws the
data anew; the intervals of the verdict are paired over draws. More take `tuneparts extend`.
"""


def search(scale: Scale) -> Search:
    """Four arms at the same steps, on all data but the test."""
    steps = scale.pick(smoke=40, cpu=2400, paper=20_000)
    comparison = Comparison(
        shared={
            "steps": steps,
            "interval": steps // 4,
            "net": DigitsCnn(),
            "batch_size": 50,
            "optimiser": {"lr": 0.006},
        },
        samples={"samples": scale.pick(smoke=2, cpu=4, paper=20), "eval_samples": 8},
    )
    data = Data(name="digits", rotated=True, num_val=300)
    return verdict(comparison, name="partition_best", notes=NOTES, scale=scale, data=data)
