"""How much do the thresholds matter that decide who shares templates, and who coefficients?

Tau splits clusters by gradient conflict, beta unties coefficients. Random clusters of the very
sizes that each tau gives are the control. The report has the tau and the clusters of each trial.
"""

from studies.sharing import MIXED_EPOCHS, Sharing, wide_resnets
from tuneparts.search.spec import Scale, Search

NOTES = """
Teterwak et al. (2024, supplementary Figure 4): WRN-28-[7,4,3] on CIFAR-100 from 18 million weights,
tau and beta swept. A beta below -1 never unties (the paper's "shared"), one above
1 unties everything ("not shared"). The random clusters are a control that the paper does not have.
`cpu` scale: WRN-16-[1.25,1] and WRN-10-[1.25] on 800 rotated MNIST digits of 14 x 14 pixels, from
480,000 weights of the 562,000 that they would have apart, so that clusters can split; norms of the
batch in the gradient analysis. `published` has tau 0.1 and beta 0.9, and every other arm changes
one of them; `_random` has random clusters of the very sizes that the gradients gave. Declared:
`published` against its random clusters.
"""


def search(scale: Scale) -> Search:
    """The published thresholds, other values of each, and random clusters for those of tau."""
    setting = Sharing(scale=scale)
    members = scale.pick(
        smoke=wide_resnets((16, 1), (10, 1)),
        cpu=wide_resnets((16, 1.25), (16, 1), (10, 1.25)),
        paper=wide_resnets((28, 7), (28, 4), (28, 3)),
    )
    budget = scale.pick(smoke=173_000, cpu=480_000, paper=18_000_000)
    base = setting.gradient_shared(members, budget, holds_out=True)
    taus = scale.pick(smoke=(), cpu=(-0.1, 0.05, 0.15), paper=(-0.1, 0.0, 0.2, 0.3, 0.5))
    betas = scale.pick(
        smoke=(), cpu=(-1.1, 0.1, 0.5, 1.1), paper=(-1.1, 0.1, 0.3, 0.5, 0.7, 0.95, 1.1)
    )
    random = base.replaced({"sharing.clusters": "random"})
    arms = [setting.arm("published", base), setting.arm("published_random", random)]
    for tau in taus:
        change, name = {"sharing.tau": tau}, _named("tau", tau)
        arms.append(setting.arm(name, base.replaced(change)))
        if tau > 0:  # below, layers stay together until their gradients oppose each other
            arms.append(setting.arm(f"{name}_random", random.replaced(change)))
    for beta in betas:
        change = {"sharing.beta": beta}
        arms.append(setting.arm(_named("beta", beta), base.replaced(change)))
    return setting.search(
        name="superweights_thresholds",
        question="How much do tau and beta matter, and is it the gradients that do?",
        notes=NOTES,
        holds_out=True,
        steps=setting.steps(MIXED_EPOCHS),
        compare=("published", "published_random"),
        arms=tuple(arms),
        figures=(
            "scores",
            "scores:test/nll",
            "sweep:param.sharing.tau,superweights/clusters",
            "sweep:param.sharing.beta,superweights/vectors",
        ),
    )


def _named(setting: str, value: float) -> str:
    return f"{setting}_{value:g}".replace("-", "m").replace(".", "_")
