"""Is the mean over draws of a compressed net's weights better than the net itself?

A fixed weight keeps the deviation of its cluster, so that one file gives an ensemble (20 draws in
Subia-Waud & Dasmahapatra 2023). Their script also weights draws by the true label of each test
image; here probabilities are averaged plainly. `test/accuracy`, `test/nll` and `test/ece` are those
of the means, `test/ensemble_*` those of the draws.
"""

import tuneparts as tp
from studies.fixing import Fixing


def search(scale: tp.Scale) -> tp.Search:
    setting = Fixing(scale, converged=True)
    draws = scale.pick(smoke=3, cpu=20, paper=20)
    exposures = scale.pick(smoke=(1.0,), cpu=(0.3, 1.0, 3.0), paper=(0.3, 1.0, 3.0))
    arms = {
        f"exposure_{exposure}".replace(".", "_"): setting.config(
            sigma={"exposure": exposure}, ensemble=draws
        )
        for exposure in exposures
    }
    figures = [f"sweep:fixing/exposure,test/ensemble_{score}" for score in ("nll", "accuracy")]
    return setting.search(__doc__, arms, paper_seeds=5, figures=figures)
