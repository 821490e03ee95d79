"""What does a stronger pull on the deviations buy, and what does it cost?

A stronger pull lets weights move further when they are fixed: fewer distinct values, a lower
entropy, and at some point a lower accuracy. Subia-Waud & Dasmahapatra (2023, appendix, Figure 2)
sweep alpha on CIFAR-10 with a ResNet-18. `paper` scale follows their schedule (27.05 epochs of
batch 256 in ten rounds, SGD at 1e-3) after 60 epochs of our own pretraining; theirs came with its
weights. What alpha does depends on learning rate and length: `fixing/exposure` makes runs
comparable, and alphas are larger at `cpu` scale because runs are shorter. The gradient of the loss
is clipped before the pull is added, so that a strong pull does not shrink it.
"""

import tuneparts as tp
from studies.fixing import Fixing


def search(scale: tp.Scale) -> tp.Search:
    powers = scale.pick(
        smoke=(-11, -1), cpu=(-11, -5, -3, -1, 1), paper=(-12, -11, -9, -7, -5, -3, -1)
    )
    zero = scale.pick(smoke=(), cpu=(0.0,), paper=(0.0,))
    alphas = tp.Choice([*zero, *(2.0**power for power in powers)])
    setting = Fixing(scale)
    grid = setting.config().searched_by(tp.GridSearch(), {"sigma.alpha": alphas})
    found = ("test/accuracy", "size/unique_weights", "size/entropy", "size/coded_bytes")
    figures = tuple(f"sweep:param.sigma.alpha,{metric}" for metric in found)
    return setting.search(__doc__, {"pwfn": grid}, figures=figures)
