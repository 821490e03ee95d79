"""Partitioned networks: hyperparameters learnt in one run (Mlodozeniec et al. 2023).

Your own net and data, in ten lines:

    from torch import nn
    import tuneparts as tp

    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10),
    )
    found = tp.PartitionedClassifier(net, hypers=tp.Affine()).fit(images, labels)
    print(found.hypers_["rotation"], found.lml_)
    predicted = found.predict(images)

For a loop of your own there is `PartitionedNet`, which runs any subnetwork of a net, and
`PartitionedOptimiser`, which steps one partition at a time.
"""

from tuneparts.core import lazy

__getattr__, __all__ = lazy.attach(__file__, __name__)
