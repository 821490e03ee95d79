"""How do the strength of the pull, the time between rounds and the thresholds act together?

All combinations in one grid, with the fineness of the values among them.
"""

from studies.fixing import Fixing
from tuneparts.search.algorithms.base import GridSearch
from tuneparts.search.space import Choice
from tuneparts.search.spec import Scale, Search

NOTES = """
Subia-Waud & Dasmahapatra (2023, appendix, Figure 4) draw all combinations of alpha, epochs between
rounds and a threshold gamma, which they do not define. Two things are thresholds: 2^-bits, below
which a weight goes to zero and which is the finest value, and delta, the first distance at which
weights are taken. Both are swept. Arms differ in the epochs between rounds and so in steps: that
is part of the question. `released` repeats one arm with the habits of the authors' code (fixed
deviations are pulled on, weight decay moves fixed weights, clipping after the pull), for whoever
follows published digits.
"""


def search(scale: Scale) -> Search:
    """One arm for each number of epochs, a grid over alpha, bits and delta in each."""
    setting = Fixing(scale=scale, converged=True)
    per_epoch = scale.pick(smoke=10, cpu=100, paper=175)
    usual = scale.pick(smoke=1, cpu=1, paper=3)
    space = {
        "sigma.alpha": Choice(
            options=scale.pick(
                smoke=(0.5,),
                cpu=(2.0**-3, 2.0**-1, 2.0),
                paper=(0.0, 2.0**-11, 2.0**-9, 2.0**-7, 2.0**-5, 2.0**-3, 2.0**-1),
            )
        ),
        "quantiser.bits": Choice(
            options=scale.pick(smoke=(7, 5), cpu=(7, 5, 4), paper=(8, 7, 6, 5, 4))
        ),
        "quantiser.delta": Choice(
            options=scale.pick(smoke=(1.0,), cpu=(0.5, 1.0, 2.0), paper=(0.125, 0.5, 1.0, 2.0, 4.0))
        ),
    }
    arms = []
    for epochs in scale.pick(smoke=(1,), cpu=(0.5, 1), paper=(1, 3, 5, 10)):
        for habits in ("careful", "released") if epochs == usual else ("careful",):
            config = setting.config(
                rounds=round((9 * epochs + 0.05) * per_epoch),
                first_round=0.05 / epochs,
                sigma={"alpha": 2.0**-11},
                quantiser={"kind": "clusters"},
                habits=habits,
            )
            name = f"epochs_{epochs}".replace(".", "_") if habits == "careful" else habits
            note = "" if epochs == usual else "epochs between rounds are part of the question"
            arms.append(
                setting.arm(name, config, algorithm=GridSearch(), space=space, budget_note=note)
            )
    return setting.search(
        name="pwfn_grid",
        question="How do pull, time between rounds and thresholds act together?",
        notes=NOTES,
        steps=next(arm.config.steps for arm in arms if not arm.budget_note),
        arms=tuple(arms),
        figures=(
            "sweep:param.sigma.alpha,test/accuracy",
            "sweep:param.quantiser.bits,size/entropy",
            "sweep:param.quantiser.delta,size/entropy",
        ),
    )
