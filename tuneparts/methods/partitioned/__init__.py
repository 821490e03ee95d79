"""Partitioned networks: hyperparameters learnt in one run (Mlodozeniec et al. 2023).

One's own net and data, in ten lines:

    from torch import nn
    from tuneparts.methods.partitioned import fit

    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10),
    )
    found = fit(net, images, labels, hypers="affine")
    print(found.hypers["rotation"], found.lml)
    logits = found.predict(images)

For a loop of one's own there is `Partitioned`, which runs any subnetwork of a net, and
`PartitionedOptimiser`, which steps one partition at a time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tuneparts.methods.partitioned.config import PartitionedConfig, ReleasedConfig

if TYPE_CHECKING:
    from tuneparts.methods.partitioned.fitted import Fitted, fit
    from tuneparts.methods.partitioned.learner import PartitionedLearner
    from tuneparts.methods.partitioned.mixed import MixedBatch
    from tuneparts.methods.partitioned.steps import (
        Evidence,
        PartitionedOptimiser,
        decay_factors,
        evidence,
    )
    from tuneparts.methods.partitioned.subnetwork import Partitioned, Share, View

__all__ = [
    "Evidence",
    "Fitted",
    "MixedBatch",
    "Partitioned",
    "PartitionedConfig",
    "PartitionedLearner",
    "PartitionedOptimiser",
    "ReleasedConfig",
    "Share",
    "View",
    "decay_factors",
    "evidence",
    "fit",
]


def __getattr__(name: str) -> Any:
    """Names that need torch are imported when they are first used; a config needs none."""
    if name in __all__:
        for module in ("fitted", "learner", "mixed", "steps", "subnetwork"):
            found = import_module(f"{__name__}.{module}")
            if name in vars(found):
                return getattr(found, name)
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
