"""Partitioned networks: hyperparameters learnt in one run (Mlodozeniec et al. 2023).

One's own net and data, in ten lines:

    from torch import nn
    from tuneparts.partition import fit

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

from tuneparts.partition.fitted import Fitted, fit
from tuneparts.partition.learner import PartitionedConfig, PartitionedLearner
from tuneparts.partition.node import MixedBatch
from tuneparts.partition.objective import Evidence, evidence
from tuneparts.partition.optimisers import PartitionedOptimiser, decay_factors
from tuneparts.partition.subnetwork import Partitioned, Share, View

__all__ = [
    "Evidence",
    "Fitted",
    "MixedBatch",
    "Partitioned",
    "PartitionedConfig",
    "PartitionedLearner",
    "PartitionedOptimiser",
    "Share",
    "View",
    "decay_factors",
    "evidence",
    "fit",
]
