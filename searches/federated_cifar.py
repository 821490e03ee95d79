"""Can clients with photographs learn the augmentation that their data needs, and at what cost?

As `federated_mnist`, on rotated CIFAR-10. Mlodozeniec et al. (2023, appendix J) split 1,250, 5,000
or 45,000 images among 100 clients by Dirichlet skew of 1.0 over labels, or of 0.1 over ten bins of
rotation; a ResNet-9 with group norms and dropout of 0.1 inside its blocks; two chunks and
partitions of 90 and 10 per cent; local SGD at 10^-0.5 in batches of 32 for one epoch; Adam at 1e-2
for weights and 1e-3 for hyperparameters on the server, epsilon 1e-7; one batch for a client's
gradient of the hyperparameters; 10 augmentation samples; 5,000 rounds, scored on 5,000 validation
images. How many clients take part in a round is not stated: ten, a choice. At `cpu` scale: 2,000
images of 16 x 16 pixels, a net of 8 channels at its stem, 2 samples, 120 rounds, a larger hyper
rate, and learnt ranges that start at 0.3.
"""

import tuneparts as tp
from studies.federation import federation


def search(scale: tp.Scale) -> tp.Search:
    num_clients = scale.pick(smoke=10, cpu=100, paper=100)
    return federation(
        scale,
        __doc__,
        data=tp.data.Cifar10(
            rotated=True,
            num_train=scale.pick(smoke=100, cpu=2000, paper=None),
            num_val=scale.pick(smoke=50, cpu=500, paper=5000),
            num_test=scale.pick(smoke=50, cpu=1000, paper=None),
            pool=scale.pick(smoke=4, cpu=2, paper=1),
        ),
        net=tp.nets.ResNet9(width=scale.pick(smoke=4, cpu=8, paper=64)),
        batch_size=32,
        optimiser=tp.Sgd(lr=10**-0.5, momentum=0.0),
        num_batches=scale.pick(smoke=1, cpu=1, paper=15),
        exchange={
            "rounds": scale.pick(smoke=2, cpu=120, paper=5000),
            "rounds_per_report": scale.pick(smoke=1, cpu=12, paper=10),
            "clients_per_round": scale.pick(smoke=4, cpu=10, paper=10),
            "clients": {"num": num_clients, "alpha": 1.0, "rotation_alpha": 0.1},
            "server": {"kind": "adam", "lr": 1e-2, "eps": 1e-7},
        },
        num_samples=scale.pick(smoke=1, cpu=2, paper=10),
        start=scale.pick(smoke=0.3, cpu=0.3, paper=0.05),
        learning={
            "proportions": (0.9, 0.1),
            "hyper_lr": scale.pick(smoke=0.05, cpu=0.05, paper=1e-3),
            "hyper_batches": 1,
        },
        gpus=0.5,
    )
