"""How long must weights train between two rounds of fixing?

Subia-Waud & Dasmahapatra (2023, appendix, Figure 3) vary the epochs between rounds on CIFAR-10
with a ResNet-18, and find three to be enough. Every arm starts from the same pretrained net, seed
by seed, so that arms differ in steps: that is the question. At `cpu` scale with an alpha for which
the shorter runs still move deviations.
"""

import tuneparts as tp
from studies.fixing import Fixing


def search(scale: tp.Scale) -> tp.Search:
    setting = Fixing(scale)
    per_epoch = scale.pick(smoke=10, cpu=100, paper=175)
    usual = scale.pick(smoke=1, cpu=1, paper=3)
    alpha = scale.pick(smoke=0.5, cpu=0.5, paper=2.0**-11)
    arms = {}
    for number in scale.pick(smoke=(1, 2), cpu=(0.25, 0.5, 1, 3), paper=(1, 2, 3, 5, 10)):
        # A twentieth of an epoch, and nine rounds.
        rounds = round((9 * number + 0.05) * per_epoch)
        config = setting.config(rounds=rounds, first_round=0.05 / number, sigma={"alpha": alpha})
        note = "" if number == usual else "epochs between rounds are the question"
        arms[f"epochs_{number}".replace(".", "_")] = tp.Arm(config=config, budget_note=note)
    steps = arms[f"epochs_{usual}"].config.steps
    return setting.search(
        __doc__, arms, steps=steps, figures=("accuracy:val/accuracy", "accuracy:size/entropy")
    )
