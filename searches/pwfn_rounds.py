"""How do accuracy, distinct weights and entropy change from round to round?

For every combination of how strongly deviations are pulled and how far weights may move at first.
"""

from itertools import product

from studies.fixing import Fixing
from tuneparts.search.spec import Scale, Search

NOTES = """
Subia-Waud & Dasmahapatra (2023, appendix, Figure 4) draw all combinations of alpha, epochs
between rounds and a threshold gamma, which they do not define; here the first threshold delta is
varied, and epochs in `pwfn_epochs`. Reports come often, so that every round is seen; weights that
are not fixed yet count as values of their own, so that entropy starts near the logarithm of their
number. At `cpu` scale: 5,000 rotated MNIST digits at 14 x 14 pixels and a net of 6,218 weights.
"""


def search(scale: Scale) -> Search:
    """One arm for each combination, so that each has a curve."""
    setting = Fixing(scale=scale, num_reports=scale.pick(smoke=20, cpu=20, paper=40))
    alphas = scale.pick(smoke=(-1,), cpu=(-11, -3, 1), paper=(-11, -7, -3))
    deltas = scale.pick(smoke=(1,), cpu=(1, 4), paper=(1, 4))
    arms = tuple(
        setting.arm(
            f"alpha_{'m' if power < 0 else ''}{abs(power)}_delta_{delta}",
            setting.config(
                sigma={"alpha": 2.0**power}, quantiser={"kind": "clusters", "delta": delta}
            ),
        )
        for power, delta in product(alphas, deltas)
    )
    return setting.search(
        name="pwfn_rounds",
        question="How do accuracy, distinct weights and entropy change from round to round?",
        notes=NOTES,
        arms=arms,
        figures=(
            "rounds:val/accuracy",
            "rounds:size/unique_weights",
            "rounds:size/entropy",
            *dict.fromkeys(f"deviations:{arm.name}" for arm in (arms[0], arms[-1])),
        ),
    )
