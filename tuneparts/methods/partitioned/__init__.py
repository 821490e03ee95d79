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

from tuneparts.core import lazy

__getattr__, __all__ = lazy.attach(__file__, __name__)
