"""What does compression cost on Tiny ImageNet, beside rounding in the same rounds?"""

from typing import Any

from studies.fixing import Fixing
from tuneparts.data.config import Data
from tuneparts.search.arm import Arm
from tuneparts.search.spec import Scale, Search

NOTES = """
No published net has the 200 classes of Tiny ImageNet, so that a ResNet-18 is pretrained once for
each seed, as in the searches on CIFAR-10, and compressed by their schedule. Only `paper` scale
reads Tiny ImageNet; the other scales try the search on digits.
"""


def search(scale: Scale) -> Search:
    """PWFN at three exposures, rounding, and the schedule without fixing."""
    setting = Fixing(scale=scale, converged=True)

    def arm(name: str, **changes: Any) -> Arm:
        return setting.arm(name, setting.config(**changes))

    arms = [
        arm(f"exposure_{exposure}".replace(".", "_"), sigma={"exposure": exposure})
        for exposure in scale.pick(smoke=(1.0,), cpu=(0.3, 1.0, 3.0), paper=(0.3, 1.0, 3.0))
    ]
    arms += [
        arm(f"nearest_bits_{bits}", quantiser={"kind": "nearest", "bits": bits})
        for bits in scale.pick(smoke=(4,), cpu=(5, 4), paper=(7, 6, 5, 4))
    ]
    arms.append(arm("free", quantiser={"kind": "free"}))
    paper: dict[str, Any] = {"data": Data(name="tinyimagenet", num_val=10_000)}
    return setting.search(
        name="pwfn_tinyimagenet",
        question="What does compression cost on Tiny ImageNet?",
        notes=NOTES,
        arms=tuple(arms),
        figures=("sweep:size/entropy,test/accuracy", "matched:size/entropy,test/accuracy"),
        **scale.pick(smoke={}, cpu={}, paper=paper),
    )
