"""Forms of partitioned training, and of validation-set optimisation, as arms at equal steps.

Validation-set optimisation is here partitioned training in which the first partition has all
weights: the same learner, so that every form can be given to the other method too.
"""

from typing import Any

import tuneparts as tp
from studies import after_question, on_gpus
from studies.comparison import Comparison

TRAVEL = 18.0
"""Hyper rate times hyper steps."""
FAR = 2 * TRAVEL
HELD_OUT: dict[str, Any] = {"proportions": (0.8, 0.2), "parameter_proportions": (1.0, 0.0)}
MIXED: dict[str, Any] = {"scheme": "node", "mixed": True}
JOINT: dict[str, Any] = {"hyper_share": 0.2}
LEAN: dict[str, Any] = {"parameter_proportions": "lean"}


def form(
    setting: Comparison, *, late: float = 0.0, every: int = 1, travel: float = TRAVEL, **fields: Any
) -> tp.Partitioned:
    """One form, with a last stage of a share `late` of the steps and `every` updates a hyper step.

    In the last stage all weights train on all data. `travel` is hyper rate times hyper steps.
    """
    steps = (1 - late) * setting.shared["steps"]
    return tp.Partitioned.published(
        hyper_lr=travel * (1 if "hyper_share" in fields else every + 1) / steps,
        hyper_every=every,
        finetune=setting.last_stage(late) if late else None,
        **fields,
    )


def verdict(
    setting: Comparison, docstring: str | None, *, scale: tp.Scale, gpus: float = 0
) -> tp.Search:
    """The form that development chose against validation-set optimisation in its best form.

    Nothing is selected: every arm has one trial per seed, and trains on all data but the test.
    """
    arms = {
        "partitioned_best": form(setting, late=0.25, **LEAN, **MIXED, **JOINT),
        "validation_best": form(setting, every=4, late=0.25, **HELD_OUT),
        "published": form(setting),
    }
    return tp.Search(
        **setting.shared,
        hypers=setting.hypers,
        notes=after_question(docstring),
        compare=("partitioned_best", "validation_best"),
        references=("none",),
        within=0.01,
        seeds=scale.pick(smoke=(0,), cpu=tuple(range(1000, 1005)), paper=(1000, 1001, 1002)),
        arms={**on_gpus(scale, gpus, arms), "none": tp.Standard(train_on="all", hypers=[])},
        figures=("scores", "subnetworks", "accuracy", "hypers"),
    )
