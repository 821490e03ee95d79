"""How long must weights train between two rounds of fixing?

Free weights make up for what fixing did to the others. The longer they may, the better, but the
authors found three epochs to be enough.
"""

from studies.fixing import Fixing
from tuneparts.search.arm import Arm
from tuneparts.search.spec import Scale, Search

NOTES = """
Subia-Waud & Dasmahapatra (2023, appendix, Figure 3) vary the epochs between rounds on CIFAR-10
with a ResNet-18. Every arm starts from the same pretrained net, seed by seed, so that arms differ
in steps: that is the question. At `cpu` scale: 5,000 rotated MNIST digits at 14 x 14 pixels, a
net of 6,218 weights, and an alpha for which the shorter runs still move deviations.
"""


def search(scale: Scale) -> Search:
    """One arm for each number of epochs."""
    setting = Fixing(scale=scale)
    per_epoch = scale.pick(smoke=10, cpu=100, paper=175)
    usual = scale.pick(smoke=1, cpu=1, paper=3)

    def arm(number: float) -> Arm:
        """A twentieth of an epoch, and nine rounds."""
        config = setting.config(
            rounds=round((9 * number + 0.05) * per_epoch),
            first_round=0.05 / number,
            sigma={"alpha": scale.pick(smoke=0.5, cpu=0.5, paper=2.0**-11)},
        )
        note = "" if number == usual else "epochs between rounds are the question"
        return setting.arm(f"epochs_{number}".replace(".", "_"), config, budget_note=note)

    return setting.search(
        name="pwfn_epochs",
        question="How long must weights train between two rounds of fixing?",
        notes=NOTES,
        steps=arm(usual).config.steps,
        arms=tuple(
            arm(number)
            for number in scale.pick(smoke=(1, 2), cpu=(0.25, 0.5, 1, 3), paper=(1, 2, 3, 5, 10))
        ),
        figures=("accuracy:val/accuracy", "accuracy:size/entropy"),
    )
