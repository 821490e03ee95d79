"""The setting of the searches on photographs: schedules, chunks and arms.

`paper` follows Mlodozeniec et al. (2023, I.3 and I.4): FixUp ResNets on CIFAR-10 and a ResNet-50
with GroupNorm on TinyImagenet; SGD at 0.1 with momentum, annealed by a cosine to 0.001; weight
decay of 1e-4, larger for earlier partitions by the square root of their share of the data; batches
of 250 and 20 augmentation samples. Their iterations depend on the number of images. An iteration is
an update and a hyper step, and so two steps.
"""

from collections.abc import Mapping
from typing import Any

import tuneparts as tp
from studies import after_question, on_gpus, reach
from studies.comparison import LAPLACE, Comparison

ITERATIONS = {1000: 2400, 5000: 8000, 10_000: 12_000, 20_000: 20_000, 50_000: 40_000}
"""Images of CIFAR-10 -> iterations; rotated images take twice as many."""
TINY_ITERATIONS = {10_000: 80_000, 50_000: 80_000, 100_000: 40_000}
"""The same of TinyImagenet as printed; rotated images take 120,000 at every size."""
HALF = "as many updates as the iterations of the paper"


def iterations(table: Mapping[int, int], num_train: int) -> int:
    """The iterations that the paper takes for so many images."""
    if num_train not in table:
        known = ", ".join(map(str, table))
        raise tp.ConfigError(f"`num_train` = {num_train}: iterations are known for {known} images.")
    return table[num_train]


def photographs(
    scale: tp.Scale,
    docstring: str | None,
    *,
    iterations: int,
    start: float = 0.05,
    has_laplace: bool = True,
    num_classes: int = 10,
    chunks: Mapping[str, Any],
    **fields: Any,
) -> tp.Search:
    """Learners, references and retrained nets as one search.

    `iterations` are the updates of partitioned training, which has the fields `chunks`; the six
    ranges start at `start`. Laplace needs layers with Kronecker factors, and few classes.
    """
    num, is_paper = scale.pick(smoke=2, cpu=4, paper=20), scale is tp.Scale.PAPER
    sgd = tp.Sgd(lr=0.1 if is_paper else 0.05, schedule="cosine", final_lr=0.001)
    optimiser, undecayed = sgd.replaced({"weight_decay": 1e-4}), {"optimiser": sgd}
    setting = Comparison(
        {
            **fields,
            "steps": 2 * iterations,
            "interval": max(1, 2 * iterations // 5),
            "batch_size": scale.pick(smoke=20, cpu=50, paper=250),
            "optimiser": optimiser,
        },
        {"samples": num, "eval_samples": num},
        start=start,
        reach=None if is_paper else 18.0,
    )

    def halved(config: tp.Method) -> tp.Arm:
        """With as many steps as partitioned training takes updates, and the same reach."""
        changes = {"steps": iterations, "interval": max(1, iterations // 5)}
        if hasattr(config, "hyper_lr") and not is_paper:
            changes["hyper_lr"] = 2 * config.hyper_lr
        return tp.Arm(config=config.replaced(changes), budget_note=HALF)

    configs: dict[str, tp.Method] = {
        "partitioned": tp.Partitioned.published(weight_decay_scaling="sqrt", **chunks),
        "validation": tp.ValidationSet(),
        "augerino": tp.Augerino(),
    }
    learners = {name: setting.at_rate(config) for name, config in configs.items()}
    references, none = setting.references(), tp.Standard(train_on="all", hypers=[])
    retrained = setting.retrained(["partitioned", "validation"])
    laplace: dict[str, tp.Method] = {}
    if has_laplace:  # it finds its decay
        every = scale.pick(smoke=5, cpu=20, paper=100)
        config = tp.Laplace(**LAPLACE, **undecayed, evidence_every=every)
        laplace = {"laplace": setting.at_rate(config)}
        retrained |= setting.retrained(["laplace"], **undecayed)
    arms: dict[str, tp.Method | tp.Arm] = {
        **learners,
        "augerino_iterations": halved(learners["augerino"]),
        **laplace,
        "none": none,
        "none_iterations": halved(none),
        "oracle": references["oracle"],
        **retrained,
    }
    return tp.Search(
        **setting.shared,
        hypers=setting.hypers,
        notes=after_question(docstring) + reach.listed(arms, num_classes),
        metric="val/accuracy",
        compare=("partitioned", "validation"),
        references=("none", "oracle"),
        seeds=scale.pick(smoke=1, cpu=3, paper=3),
        arms=on_gpus(scale, 1, arms),
        figures=("scores", "accuracy", "hypers", "samples"),
    )
