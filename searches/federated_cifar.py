"""Can clients with photographs learn the augmentation that their data needs, and at what cost?

Rotated CIFAR-10 over 100 clients, each with images of few directions. Other sizes and the upright
images, whose clients have few labels instead, are the same search with other data:

    tuneparts search federated_cifar --set data.num_train=1250
    tuneparts search federated_cifar --set data.rotated=false
"""

from studies.federation import Federation
from tuneparts.data.config import Data
from tuneparts.nets import ResNet9
from tuneparts.search.arm import Resources
from tuneparts.search.spec import Scale, Search

NOTES = """
Mlodozeniec et al. (2023, appendix J) split 1,250, 5,000 or 45,000 images among 100 clients by
Dirichlet skew of 1.0 over labels, or of 0.1 over ten bins of rotation; a ResNet-9 with group norms
and dropout of 0.1 inside its blocks; two chunks and partitions of 90 and 10 per cent; local SGD at
10^-0.5 in batches of 32 for one epoch; Adam at 1e-2 for weights and 1e-3 for hypers on the server,
epsilon 1e-7; one batch for a client's gradient of the hypers; 10 augmentation samples; 5,000
rounds, scored on 5,000 validation images. How many clients take part in a round is not stated: ten,
a choice. `paper` scale has all images; 1,250 and 5,000 by `data.num_train`. At `cpu` scale: 2,000
images of 16 x 16 pixels, a net of 8 channels at its stem, 2 samples, 120 rounds, a larger rate for
the hypers, and learnt ranges that start at 0.3. The arms are those of `federated_mnist`.
"""


def search(scale: Scale) -> Search:
    """Partitioned and averaged training over the same clients and rounds."""
    federation = Federation(
        rounds=scale.pick(smoke=2, cpu=120, paper=5000),
        rounds_per_report=scale.pick(smoke=1, cpu=12, paper=10),
        num_asked=scale.pick(smoke=4, cpu=10, paper=10),
        num_batches=scale.pick(smoke=1, cpu=1, paper=15),
        shared={
            "net": ResNet9(width=scale.pick(smoke=4, cpu=8, paper=64)),
            "batch_size": 32,
            "optimiser": {"kind": "sgd", "lr": 10**-0.5, "momentum": 0.0},
            "clients": {
                "num": scale.pick(smoke=10, cpu=100, paper=100),
                "alpha": 1.0,
                "rotation_alpha": 0.1,
            },
            "server": {"kind": "adam", "lr": 1e-2, "eps": 1e-7},
        },
        samples=scale.pick(
            smoke={"samples": 1, "eval_samples": 1},
            cpu={"samples": 2, "eval_samples": 2},
            paper={"samples": 10, "eval_samples": 10},
        ),
        proportions=(0.9, 0.1),
        hyper_lr=scale.pick(smoke=0.05, cpu=0.05, paper=1e-3),
        hyper_batches=1,
        start=scale.pick(smoke=0.3, cpu=0.3, paper=0.05),
        num_trials=scale.pick(smoke=2, cpu=4, paper=50),
        resources=Resources(gpus=scale.pick(smoke=0, cpu=0, paper=0.5)),
    )
    return federation.search(
        name="federated_cifar",
        question="Can clients with photographs learn the augmentation that their data needs?",
        notes=NOTES,
        scale=scale,
        data=Data(
            name="cifar10",
            rotated=True,
            num_train=scale.pick(smoke=100, cpu=2000, paper=None),
            num_val=scale.pick(smoke=50, cpu=500, paper=5000),
            num_test=scale.pick(smoke=50, cpu=1000, paper=None),
            pool=scale.pick(smoke=4, cpu=2, paper=1),
        ),
    )
