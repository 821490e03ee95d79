"""Can clients learn the augmentation that their data needs, and what does it cost on the way?

Rotated MNIST over 100 clients, each with digits of few directions. Other sizes and the upright
digits, whose clients have few labels instead, are the same search with other data:

    tuneparts search federated_mnist --set data.num_train=1250 --set data.rotated=false

Mlodozeniec et al. (2023, appendix J) split 1,250, 5,000 or 50,000 images among 100 clients by
Dirichlet skew of 0.1 over labels, or over ten bins of rotation; three chunks and partitions of 70,
20 and 10 per cent; local SGD at 0.05 in batches of 64 for one epoch; Adam at 1e-3 for weights and
3e-3 for hyperparameters on the server; 10 augmentation samples; dropout that starts at 0.1; 2,000
rounds, scored on 10,000 validation images every 10 rounds. How many clients take part in a round is
not stated: ten, a choice. At `cpu` scale: 5,000 images of 14 x 14 pixels, a net of 15,114 weights,
4 samples, 240 rounds, rates on the server scaled up for the shorter run, and learnt ranges that
start at 0.3. Federated averaging keeps its hyperparameters: dropout 0.1 and no augmentation
(`fedavg`), the rotation that made the data (`oracle`, the wrong one on upright digits), those of
the best random trial, or those that `federated` found (`retrained`). All arms have the same clients
in each round; `federated` makes up to three times the steps.
"""

import tuneparts as tp
from studies import digits
from studies.federation import federation


def search(scale: tp.Scale) -> tp.Search:
    num_val = scale.pick(smoke=50, cpu=1000, paper=10_000)
    num_test = scale.pick(smoke=50, cpu=2000, paper=None)
    fields = digits.mnist(scale, num_val=num_val, num_test=num_test)
    fields |= {"batch_size": 64, "optimiser": tp.Sgd(lr=0.05, momentum=0.0)}
    return federation(
        scale,
        __doc__,
        **fields,
        num_batches=scale.pick(smoke=1, cpu=1, paper=8),
        exchange={
            "rounds": scale.pick(smoke=4, cpu=240, paper=2000),
            "rounds_per_report": scale.pick(smoke=2, cpu=12, paper=10),
            "clients_per_round": scale.pick(smoke=5, cpu=10, paper=10),
            "clients": {"num": scale.pick(smoke=20, cpu=100, paper=100), "alpha": 0.1},
            "server": {"kind": "adam", "lr": scale.pick(smoke=0.01, cpu=0.01, paper=1e-3)},
        },
        num_samples=scale.pick(smoke=2, cpu=4, paper=10),
        start=scale.pick(smoke=0.3, cpu=0.3, paper=0.05),
        learning={
            "proportions": (0.7, 0.2, 0.1),
            "hyper_lr": scale.pick(smoke=0.05, cpu=0.05, paper=3e-3),
        },
        gpus=0.25,
    )
