"""Forms of partitioned training, and of validation-set optimisation, as arms at equal steps.

Validation-set optimisation is here the special case of partitioned training in which the first
partition has all weights: the same learner, so that every form can be given to the rival too.
"""

from typing import Any

from studies.comparison import Comparison
from tuneparts.data.config import Data
from tuneparts.methods.baselines.config import Standard
from tuneparts.methods.partitioned import Partitioned
from tuneparts.methods.partitioned.config import ReleasedConfig
from tuneparts.search.arm import Arm
from tuneparts.search.spec import Scale, Search

HYPER_STEPS = 18.0
"""Hyper learning rate times hyper steps."""
FAR = 2 * HYPER_STEPS
HELD_OUT: dict[str, Any] = {"proportions": (0.8, 0.2), "parameter_proportions": (1.0, 0.0)}
MIXED: dict[str, Any] = {"scheme": "node", "mixed": True}
JOINT: dict[str, Any] = {"hyper_share": 0.2}
LEAN: dict[str, Any] = {"parameter_proportions": (0.94, 0.03, 0.03)}


class Forms:
    """Makes the arms of one setting.

    Args:
        comparison: the setting that they share.
        fields: of every config besides.
    """

    def __init__(self, comparison: Comparison, **fields: Any) -> None:
        self._shared = {**comparison.shared, "hypers": comparison.learnt(), **fields}
        self._late = comparison.last_stage()
        self._resources = comparison.resources

    def arm(
        self,
        name: str,
        *,
        late: float = 0.0,
        every: int = 1,
        travel: float = HYPER_STEPS,
        **fields: Any,
    ) -> Arm:
        """One form of partitioned training.

        Args:
            name: of the arm.
            late: share of the steps in which all weights train on all data, at the end.
            every: updates per hyper step.
            travel: hyper learning rate times hyper steps.
            fields: of the config besides.
        """
        steps = (1 - late) * self._shared["steps"]
        hyper_lr = travel * (1 if "hyper_share" in fields else every + 1) / steps
        shared = {**self._shared, "hyper_lr": hyper_lr, "hyper_every": every, **fields}
        if late:
            shared["release"] = {**self._late, "fraction": late}
        config = ReleasedConfig(**shared) if late else Partitioned(**shared)
        return Arm(name=name, config=config, resources=self._resources)


def verdict(comparison: Comparison, *, name: str, notes: str, scale: Scale, data: Data) -> Search:
    """The form that development chose, against its rival in the best form, and no augmentation.

    Nothing is selected here: every arm has one trial per seed, and trains on all data but the test.
    """
    forms = Forms(comparison, train_on="all")
    return Search(
        name=name,
        question="Is the best form of partitioned training as good as validation-set optimisation?",
        notes=notes,
        scale=scale,
        data=data,
        metric="val/accuracy",
        compare=("partitioned_best", "validation_best"),
        references=("none",),
        within=0.01,
        steps=comparison.shared["steps"],
        seeds=scale.pick(smoke=(0,), cpu=tuple(range(1000, 1005)), paper=(1000, 1001, 1002)),
        arms=(
            forms.arm("partitioned_best", late=0.25, **LEAN, **MIXED, **JOINT),
            forms.arm("validation_best", every=4, late=0.25, **HELD_OUT),
            forms.arm("published"),
            Arm(name="none", config=Standard(**comparison.shared, train_on="all")),
        ),
        figures=("scores", "subnetworks", "accuracy", "hypers"),
    )
