"""What does a stronger pull on the deviations buy, and what does it cost?

A stronger pull lets weights move further when they are fixed: fewer distinct values, a lower
entropy, and at some point a lower accuracy.
"""

from studies.fixing import Fixing
from tuneparts.search.algorithms.base import GridSearch
from tuneparts.search.space import Choice
from tuneparts.search.spec import Scale, Search

NOTES = """
Subia-Waud & Dasmahapatra (2023, appendix, Figure 2) sweep alpha on CIFAR-10 with a ResNet-18 and
find that it trades accuracy for compressibility. `paper` scale follows their schedule (27.05
epochs of batch 256 in ten rounds, SGD at 1e-3) after 60 epochs of pretraining of our own; theirs
came with its weights. At `cpu` scale: 5,000 rotated MNIST digits at 14 x 14 pixels and a net of
6,218 weights. What alpha does depends on learning rate and length: `fixing/exposure` makes runs
comparable, and alphas are larger here because runs are shorter. The gradient of the loss is
clipped before the pull is added, so that a strong pull does not shrink it.
"""


def search(scale: Scale) -> Search:
    """One arm, a grid over alpha."""
    alphas = scale.pick(
        smoke=(2.0**-11, 0.5),
        cpu=(0.0, 2.0**-11, 2.0**-5, 2.0**-3, 2.0**-1, 2.0),
        paper=(0.0, 2.0**-12, 2.0**-11, 2.0**-9, 2.0**-7, 2.0**-5, 2.0**-3, 2.0**-1),
    )
    setting = Fixing(scale=scale)
    return setting.search(
        name="pwfn_alpha",
        question="What does a stronger pull on the deviations buy, and what does it cost?",
        notes=NOTES,
        arms=(
            setting.arm(
                "pwfn",
                setting.config(),
                algorithm=GridSearch(),
                space={"sigma.alpha": Choice(options=alphas)},
            ),
        ),
        figures=(
            "sweep:param.sigma.alpha,test/accuracy",
            "sweep:param.sigma.alpha,size/unique_weights",
            "sweep:param.sigma.alpha,size/entropy",
            "sweep:param.sigma.alpha,size/coded_bytes",
        ),
    )
