"""Which layers of a deep and a shallow net end up with the same templates?

Teterwak et al. (2024, supplementary Figure 5): clusters of a WRN-28-7 with a WRN-16-7. Data and
budget are not published: here CIFAR-100, 18 million weights as in their other ensembles of that
size, tau 0.1 and beta 0.9. `published` unites layers of both nets (Algorithm 1). `released` follows
the authors' code: layers of the first net only, of which one moves at a time, compared on a single
batch, and the second net joins where it is most similar. Which of the two made the figure is not
said. `random` has clusters of the sizes of `published`. `cpu` scale: WRN-22-1.5 and WRN-16-1.5.
"""

import tuneparts as tp
from studies.sharing import AT_RANDOM, EPOCH, MIXED_EPOCHS, Sharing, wide_resnets


def search(scale: tp.Scale) -> tp.Search:
    setting = Sharing(scale)
    members = scale.pick(
        smoke=wide_resnets((16, 1.1), (10, 1.1)),
        cpu=wide_resnets((22, 1.5), (16, 1.5)),
        paper=wide_resnets((28, 7), (16, 7)),
    )
    budget = scale.pick(smoke=210_000, cpu=600_000, paper=18_000_000)
    published = setting.gradient_shared(members, budget)
    released: dict[str, object] = {"sharing.scope": "released"}
    if setting.is_paper:  # as much training, where layers are compared on one batch of an epoch
        steps = setting.steps(MIXED_EPOCHS) - (EPOCH - 1)
        lengths = {"search": 20, "untie": 10, "analysis": 1}
        stages = {f"stages.{name}": num * EPOCH / steps for name, num in lengths.items()}
        released = {**released, "steps": steps, **stages}
    configs = {
        "published": published,
        "released": published.replaced(released),
        "random": published.replaced(AT_RANDOM),
    }
    return setting.search(
        __doc__,
        {name: setting.noted(config) for name, config in configs.items()},
        compare=("published", "released"),
        steps=setting.steps(MIXED_EPOCHS),
        figures=("membership", "scores"),
    )
