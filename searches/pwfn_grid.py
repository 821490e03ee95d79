"""How do the strength of the pull, the time between rounds and the thresholds act together?

Subia-Waud & Dasmahapatra (2023, appendix, Figure 4) draw all combinations of alpha, epochs between
rounds and a threshold gamma, which they do not define. Two things are thresholds: 2^-bits, below
which a weight goes to zero and which is the finest value, and delta, the first distance at which
weights are taken. Both are swept. Arms differ in the epochs between rounds and so in steps.
`released` repeats one arm with the habits of the authors' code (fixed deviations are pulled on,
weight decay moves fixed weights, clipping after the pull), to compare with published numbers.
"""

import tuneparts as tp
from studies.fixing import Fixing


def search(scale: tp.Scale) -> tp.Search:
    setting = Fixing(scale, converged=True)
    per_epoch = scale.pick(smoke=10, cpu=100, paper=175)
    usual = scale.pick(smoke=1, cpu=1, paper=3)
    powers = scale.pick(smoke=(-1,), cpu=(-3, -1, 1), paper=(-11, -9, -7, -5, -3, -1))
    alphas = [*scale.pick(smoke=(), cpu=(), paper=(0.0,)), *(2.0**power for power in powers)]
    bits = scale.pick(smoke=(7, 5), cpu=(7, 5, 4), paper=(8, 7, 6, 5, 4))
    deltas = scale.pick(smoke=(1.0,), cpu=(0.5, 1.0, 2.0), paper=(0.125, 0.5, 1.0, 2.0, 4.0))
    space: dict[str, tp.Dimension] = {
        "sigma.alpha": tp.Choice(alphas),
        "quantiser.bits": tp.Choice(bits),
        "quantiser.delta": tp.Choice(deltas),
    }
    arms = {}
    for epochs in scale.pick(smoke=(1,), cpu=(0.5, 1), paper=(1, 3, 5, 10)):
        is_usual = epochs == usual
        for habits in ("careful", "released") if is_usual else ("careful",):
            config = setting.config(
                rounds=round((9 * epochs + 0.05) * per_epoch),
                first_round=0.05 / epochs,
                sigma={"alpha": 2.0**-11},
                quantiser={"kind": "clusters"},
                habits=habits,
            )
            name = f"epochs_{epochs}".replace(".", "_") if habits == "careful" else habits
            note = "" if is_usual else "epochs between rounds are part of the question"
            arms[name] = tp.Arm(
                config=config, algorithm=tp.GridSearch(), space=space, budget_note=note
            )
    return setting.search(
        __doc__,
        arms,
        steps=arms[f"epochs_{usual}"].config.steps,
        figures=(
            "sweep:param.sigma.alpha,test/accuracy",
            "sweep:param.quantiser.bits,size/entropy",
            "sweep:param.quantiser.delta,size/entropy",
        ),
    )
