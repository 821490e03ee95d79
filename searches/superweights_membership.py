"""Which layers of a deep and a shallow net end up with the same templates?

By the rule of the paper, by that of the authors' code, and at random: the membership of every
layer, and what it is worth.
"""

from typing import Any

from studies.sharing import EPOCH, MIXED_EPOCHS, Sharing, wide_resnets
from tuneparts.search.spec import Scale, Search

NOTES = """
Teterwak et al. (2024, supplementary Figure 5): clusters of a WRN-28-7 with a WRN-16-7. Data and
budget are not published: here CIFAR-100, 18 million weights as in their other ensembles of that
size, tau 0.1 and beta 0.9. `published` unites layers of both nets (Algorithm 1). `released` follows
the authors' code: layers of the first net only, of which one moves at a time, compared on a single
batch, and the second net joins where it is most similar. Which of the two made the figure is not
told. `random` has clusters of the sizes of `published`. `cpu` scale: WRN-22-1.5 and WRN-16-1.5 on
800 rotated MNIST digits of 14 x 14 pixels, norms of the batch in the gradient analysis.
"""
NOTE = f"{MIXED_EPOCHS - 200} epochs of search and analysis"


def search(scale: Scale) -> Search:
    """Three rules by which two nets share."""
    setting = Sharing(scale=scale)
    members = scale.pick(
        smoke=wide_resnets((16, 1.1), (10, 1.1)),
        cpu=wide_resnets((22, 1.5), (16, 1.5)),
        paper=wide_resnets((28, 7), (16, 7)),
    )
    budget = scale.pick(smoke=210_000, cpu=600_000, paper=18_000_000)
    published = setting.gradient_shared(members, budget)
    released = published.replaced({"sharing.scope": "released", **_one_batch(setting)})
    return setting.search(
        name="superweights_membership",
        question="Which layers of a deep and a shallow net end up with the same templates?",
        notes=NOTES,
        compare=("published", "released"),
        steps=setting.steps(MIXED_EPOCHS),
        arms=(
            setting.arm("published", published, note=NOTE),
            setting.arm("released", released, note=NOTE),
            setting.arm("random", published.replaced({"sharing.clusters": "random"}), note=NOTE),
        ),
        figures=("membership", "scores"),
    )


def _one_batch(setting: Sharing) -> dict[str, Any]:
    """At `paper` scale: as much training, where layers are compared on one batch of an epoch."""
    if not setting.is_paper:
        return {}
    steps = setting.steps(MIXED_EPOCHS) - (EPOCH - 1)
    lengths = {"search": 20, "untie": 10, "analysis": 1}
    stages = {f"stages.{name}": num * EPOCH / steps for name, num in lengths.items()}
    return {"steps": steps, **stages}
