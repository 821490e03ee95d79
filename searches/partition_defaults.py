"""Does it matter what a subnetwork reads for the weights that it does not have?

Mlodozeniec et al. (2023, appendix I) find that zero and initial defaults make no difference in nets
with normalisation layers, and use initial values in FixUp nets, which have none. The nets and
settings of that comparison are not stated. At `cpu` scale: rotated digits, a wide ResNet of ten
layers with 8, 16 and 32 channels and batch normalisation, and a small CNN without norms; at
`paper` scale (a choice) rotated MNIST, WRN-16-1 and the CNN of their Table 9.
"""

import tuneparts as tp
from studies import after_question, division, on_gpus


def search(scale: tp.Scale) -> tp.Search:
    fields = division.setting(scale)
    normed = scale.pick(smoke=(10, 0.25), cpu=(10, 0.5), paper=(16, 1))
    nets = {
        "normed": tp.nets.WideResNet(depth=normed[0], width=normed[1]),
        "plain": fields.pop("net"),
    }
    arms = {
        f"{kind}_{defaults}": division.partitioned(scale, net=net, defaults=defaults)
        for kind, net in nets.items()
        for defaults in ("zero", "initial")
    }
    return tp.Search(
        **fields,
        notes=after_question(__doc__),
        metric="lml/per_example",
        seeds=scale.pick(smoke=1, cpu=5, paper=3),
        arms=on_gpus(scale, 0.5, arms),
        figures=("scores", "accuracy", "hypers"),
    )
