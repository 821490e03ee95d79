"""What does compression cost on Tiny ImageNet, compared with rounding in the same rounds?

No published net has the 200 classes of Tiny ImageNet, so that a ResNet-18 is pretrained once for
each seed, as in the searches on CIFAR-10, and compressed by their schedule. The other scales run
on digits.
"""

from typing import Any

import tuneparts as tp
from studies.fixing import Fixing


def search(scale: tp.Scale) -> tp.Search:
    setting = Fixing(scale, converged=True)
    arms = {
        f"exposure_{exposure}".replace(".", "_"): setting.config(sigma={"exposure": exposure})
        for exposure in scale.pick(smoke=(1.0,), cpu=(0.3, 1.0, 3.0), paper=(0.3, 1.0, 3.0))
    }
    for bits in scale.pick(smoke=(4,), cpu=(5, 4), paper=(7, 6, 5, 4)):
        arms[f"nearest_bits_{bits}"] = setting.config(quantiser={"kind": "nearest", "bits": bits})
    arms["free"] = setting.config(quantiser={"kind": "free"})
    paper: dict[str, Any] = {"data": tp.data.TinyImagenet(num_val=10_000)}
    return setting.search(
        __doc__,
        arms,
        figures=("sweep:size/entropy,test/accuracy", "matched:size/entropy,test/accuracy"),
        **scale.pick(smoke={}, cpu={}, paper=paper),
    )
