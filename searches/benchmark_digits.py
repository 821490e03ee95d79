"""With its own settings tuned at equal cost, which way to the hypers is best on rotated digits?

Every method tunes what it leaves open by eight trials on validation data, then trains once under a
fresh seed. A task of the benchmark: `tuneparts ranks benchmark_digits benchmark_mnist_rotated ...`.
"""

import math

from studies.tuning import Tuned, affine_space, affine_starts
from tuneparts.data.config import Data
from tuneparts.hypers import Affine
from tuneparts.nets import DigitsCnn
from tuneparts.search.spec import Scale, Search

NOTES = """
1,297 scikit-learn digits of 8 x 8 pixels, each turned over the full circle, of which 300 select; a
net of 13,706 weights; 4 augmentation samples in training and 8 in scoring. The paper's ranges go up
to 3 (Mlodozeniec et al. 2023, appendix G), the sensible ones to 0.5.
"""


def search(scale: Scale) -> Search:
    """Learners, searching arms and references, each with its tuning."""
    steps = scale.pick(smoke=16, cpu=1600, paper=20_000)
    samples = {"samples": scale.pick(smoke=1, cpu=4, paper=20), "eval_samples": 8}
    setting = Tuned(
        shared={
            "steps": steps,
            "interval": steps // 4,
            "net": DigitsCnn(),
            "batch_size": 50,
            "optimiser": {"lr": 0.006},
        },
        learnt={"affine": dict.fromkeys(Affine.NAMES, 0.3), **samples},
        starts=affine_starts(Affine.NAMES),
        space=affine_space(Affine.NAMES, 0.5),
        paper_space=affine_space(Affine.NAMES, 3.0),
        packed=8,
    )
    true = {"affine": {**dict.fromkeys(Affine.NAMES, 0.0), "rotation": math.pi}, **samples}
    return setting.search(
        name="benchmark_digits",
        notes=NOTES,
        scale=scale,
        data=Data(name="digits", rotated=True, num_val=300),
        references={"none": None, "oracle": true},
        found={"hyper/rotation": math.pi},
    )
