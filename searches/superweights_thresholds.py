"""How much do the thresholds matter that decide who shares templates, and who coefficients?

Tau splits clusters by gradient conflict, beta unties coefficients. Random clusters of the very
sizes that each tau gives are the control. The report has the tau and the clusters of each trial.
"""

from studies.sharing import MIXED_EPOCHS, Sharing, wide_resnets
from tuneparts.search.space import Choice
from tuneparts.search.spec import Arm, GridSearch, Scale, Search
from tuneparts.superweights.learner import SuperweightsConfig

NOTES = """
Teterwak et al. (2024, supplementary Figure 4): WRN-28-[7,4,3] on CIFAR-100 from 18 million weights,
tau and beta swept. A beta below -1 never unties (the paper's "shared"), one above
1 unties everything ("not shared"). The random clusters are a control that the paper does not have.
`cpu` scale: WRN-16-[1.25,1] and WRN-10-[1.25] on 800 rotated MNIST digits of 14 x 14 pixels, from
480,000 weights of the 562,000 that they would have apart, so that clusters can split; norms of the
batch in the gradient analysis.
"""


def search(scale: Scale) -> Search:
    """A sweep of tau, the same with random clusters, and a sweep of beta."""
    setting = Sharing(scale=scale)
    members = scale.pick(
        smoke=wide_resnets((16, 1), (10, 1)),
        cpu=wide_resnets((16, 1.25), (16, 1), (10, 1.25)),
        paper=wide_resnets((28, 7), (28, 4), (28, 3)),
    )
    budget = scale.pick(smoke=173_000, cpu=480_000, paper=18_000_000)
    base = setting.gradient_shared(members, budget, holds_out=True)
    taus = scale.pick(
        smoke=(0.1,), cpu=(-0.1, 0.05, 0.1, 0.15), paper=(-0.1, 0.0, 0.1, 0.2, 0.3, 0.5)
    )
    betas = scale.pick(
        smoke=(0.9,),
        cpu=(-1.1, 0.1, 0.5, 0.9, 1.1),
        paper=(-1.1, 0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 1.1),
    )

    def swept(name: str, config: SuperweightsConfig, field: str, values: tuple[float, ...]) -> Arm:
        space = {f"sharing.{field}": Choice(options=values)}
        return setting.arm(name, config, algorithm=GridSearch(), space=space)

    random = base.replaced({"sharing.clusters": "random"})
    return setting.search(
        name="superweights_thresholds",
        question="How much do tau and beta matter, and is it the gradients that do?",
        notes=NOTES,
        holds_out=True,
        passes=setting.passes(MIXED_EPOCHS),
        arms=(
            swept("tau", base, "tau", taus),
            swept("tau_random_clusters", random, "tau", taus),
            swept("beta", base, "beta", betas),
        ),
        figures=(
            "sweep:param.sharing.tau,test/accuracy",
            "sweep:param.sharing.tau,test/nll",
            "sweep:param.sharing.tau,superweights/clusters",
            "sweep:param.sharing.beta,test/accuracy",
            "sweep:param.sharing.beta,test/nll",
            "sweep:param.sharing.beta,superweights/vectors",
        ),
    )
