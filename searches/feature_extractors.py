"""Can the first layers of a net be learnt as hyperparameters, by data that the rest has not seen?

Leading layers are shared by all subnetworks and moved by hyper steps only. Mlodozeniec et al.
(2023) name feature extractors among what their objective can learn; the setting is in a part of the
paper that was not at hand, so that data, net and numbers are choices. Here: upright MNIST, the CNN
of their Table 9 (`paper`) or a small one, three chunks of 80, 10 and 10 per cent. These layers have
the rate of the weights (1e-3 at `paper` scale), because they have as far to go.
"""

import tuneparts as tp
from studies import after_question, digits, on_gpus

check = digits.check


def search(scale: tp.Scale) -> tp.Search:
    num = scale.pick(smoke=100, cpu=1000, paper=None)
    fields = digits.mnist(scale, num_train=num, num_val=0, rotated=False)
    steps, lr = scale.pick(smoke=20, cpu=2400, paper=60_000), fields["optimiser"].lr
    arms: dict[str, tp.Method] = {
        f"layers_{layers}": tp.Partitioned.published(num_extractor_layers=layers, hyper_lr=lr)
        for layers in (0, 1, 2, 4)
    }
    return tp.Search(
        **fields,
        notes=after_question(__doc__),
        steps=steps,
        interval=steps // 5,
        metric="lml/per_example",
        seeds=scale.pick(smoke=1, cpu=3, paper=3),
        arms=on_gpus(scale, 0.5, arms | {"none": tp.Standard(train_on="all")}),
        figures=("scores", "accuracy"),
    )
