"""How a hyper's class is named in JSON: its `kind`, a name of `KINDS` or an import path."""

from tuneparts.core.registry import Registry

KINDS = Registry(
    "hyper",
    {
        "flip": "tuneparts.hypers.flip:Flip",
        "label_smoothing": "tuneparts.hypers.label_smoothing:LabelSmoothing",
        "weight_prior": "tuneparts.hypers.weight_prior:WeightPrior",
        "weight_decay": "tuneparts.hypers.weight_decay:WeightDecay",
    },
    group="tuneparts.hypers",
)
"""Our own hypers that are not fields of `HypersConfig`."""
