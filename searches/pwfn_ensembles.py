"""Is the mean over draws of a compressed net's weights better than the net itself?

A fixed weight keeps the deviation of its cluster. Drawing all of them gives an ensemble for the
price of one file.
"""

from studies.fixing import Fixing
from tuneparts.search.spec import Scale, Search

NOTES = """
Subia-Waud & Dasmahapatra (2023) report ensembles of 20 draws. Their script also weights draws by
the true label of each test image; here probabilities are averaged plainly. `test/accuracy`,
`test/nll` and `test/ece` are those of the means, `test/ensemble_*` those of the draws.
"""


def search(scale: Scale) -> Search:
    """Draws of nets that were compressed with little, usual and much noise."""
    setting = Fixing(scale=scale, converged=True)
    draws = scale.pick(smoke=3, cpu=20, paper=20)
    return setting.search(
        name="pwfn_ensembles",
        question="Is the mean over draws of the weights better than the net of their means?",
        notes=NOTES,
        paper_seeds=5,
        arms=tuple(
            setting.arm(
                f"exposure_{exposure}".replace(".", "_"),
                setting.config(sigma={"exposure": exposure}, ensemble=draws),
            )
            for exposure in scale.pick(smoke=(1.0,), cpu=(0.3, 1.0, 3.0), paper=(0.3, 1.0, 3.0))
        ),
        figures=(
            "sweep:fixing/exposure,test/ensemble_nll",
            "sweep:fixing/exposure,test/ensemble_accuracy",
        ),
    )
