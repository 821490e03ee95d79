"""Does one partitioned run find the augmentation that random search looks for?

Handwritten digits, each turned by its own angle over the full circle.
"""

from tuneparts.baselines.standard import StandardConfig
from tuneparts.data.config import DataConfig
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Arm, RandomSearch, Scale, Search


def search(scale: Scale) -> Search:
    """Standard training without augmentation against random search over its ranges."""
    passes = scale.pick(smoke=20, cpu=1000, paper=20000)
    base = StandardConfig(passes=passes, interval=passes // 10, net="digits_cnn", batch_size=50)
    return Search(
        name="rotated_digits",
        question="Does one partitioned run find the augmentation that random search looks for?",
        scale=scale,
        data=DataConfig(name="digits", rotated=True, num_val=300),
        metric="val/accuracy",
        passes=passes,
        seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2), paper=(0, 1, 2, 3, 4)),
        arms=(
            Arm(name="none", config=base.replaced({"train_on": "all"})),
            Arm(
                name="random",
                config=base.replaced({"hypers.affine.rotation": 1.0, "hypers.samples": 4}),
                algorithm=RandomSearch(num_trials=scale.pick(smoke=2, cpu=8, paper=200)),
                space={"hypers.affine.rotation": Uniform(low=0.0, high=3.14159)},
            ),
            Arm(
                name="retrained",
                config=base.replaced({"train_on": "all", "hypers.samples": 4}),
                follows="random",
            ),
        ),
    )
