"""How much do the thresholds matter that decide who shares templates, and who coefficients?

Teterwak et al. (2024, supplementary Figure 4): WRN-28-[7,4,3] on CIFAR-100 from 18 million weights,
tau (which splits clusters by gradient conflict) and beta (which unties coefficients) swept. A beta
below -1 never unties (the paper's "shared"), one above 1 unties everything ("not shared").
`published` has tau 0.1 and beta 0.9, and every other arm changes one of them; `_random` has random
clusters of the very sizes that the gradients gave, a control that the paper does not have.
Declared: `published` against its random clusters. `cpu` scale: WRN-16-[1.25,1] and WRN-10-[1.25]
from 480,000 weights of the 562,000 that they would have apart, so that clusters can split.
"""

import tuneparts as tp
from studies.sharing import AT_RANDOM, MIXED_EPOCHS, Sharing, wide_resnets


def search(scale: tp.Scale) -> tp.Search:
    setting = Sharing(scale)
    members = scale.pick(
        smoke=wide_resnets((16, 1), (10, 1)),
        cpu=wide_resnets((16, 1.25), (16, 1), (10, 1.25)),
        paper=wide_resnets((28, 7), (28, 4), (28, 3)),
    )
    budget = scale.pick(smoke=173_000, cpu=480_000, paper=18_000_000)
    base = setting.gradient_shared(members, budget, holds_out=True)
    arms = {"published": base, "published_random": base.replaced(AT_RANDOM)}
    for tau in scale.pick(smoke=(), cpu=(-0.1, 0.05, 0.15), paper=(-0.1, 0.0, 0.2, 0.3, 0.5)):
        name, change = _named("tau", tau), {"sharing.tau": tau}
        arms[name] = base.replaced(change)
        if tau > 0:  # below, layers stay together until their gradients oppose each other
            arms[f"{name}_random"] = base.replaced(AT_RANDOM | change)
    few, many = (-1.1, 0.1, 0.5, 1.1), (-1.1, 0.1, 0.3, 0.5, 0.7, 0.95, 1.1)
    for beta in scale.pick(smoke=(), cpu=few, paper=many):
        arms[_named("beta", beta)] = base.replaced({"sharing.beta": beta})
    return setting.search(
        __doc__,
        arms,
        holds_out=True,
        steps=setting.steps(MIXED_EPOCHS),
        compare=("published", "published_random"),
        figures=(
            "scores",
            "scores:test/nll",
            "sweep:param.sharing.tau,superweights/clusters",
            "sweep:param.sharing.beta,superweights/vectors",
        ),
    )


def _named(setting: str, value: float) -> str:
    return f"{setting}_{value:g}".replace("-", "m").replace(".", "_")
