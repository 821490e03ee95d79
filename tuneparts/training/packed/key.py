"""Which configs can be lanes of one pack: those that differ only where lanes have own values."""

import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from tuneparts.augment.hyper import Hyper, Number

if TYPE_CHECKING:  # which imports this module
    from tuneparts.training.supervised import SupervisedConfig

_IN_COMMON = ("kind", "momentum", "nesterov", "scalar_lr_factor")
"""Fields of the optimiser that all lanes share; rates, schedules and decay are each lane's own."""


def lane_key(config: "SupervisedConfig", *, own: Collection[str] = ()) -> str:
    """What the configs of one pack have in common, as text.

    Numbers of hypers are left out, unless they stand at an end of their range or at no effect:
    there a hyper draws nothing, or does nothing, and lanes would not be alike.

    Args:
        config: of a trial.
        own: further fields in which lanes may differ.
    """
    tree = config.model_dump(mode="json", exclude={"hypers", "optimiser", *own})
    tree["optimiser"] = {name: getattr(config.optimiser, name) for name in _IN_COMMON}
    tree["hypers"] = config.hypers.model_dump(
        mode="json", include={"samples", "eval_samples", "averaging", "frozen"}
    )
    tree["parts"] = {name: _part(hyper) for name, hyper in config.hypers.parts.items()}
    return json.dumps(tree, sort_keys=True)


def _part(hyper: Hyper) -> list[Any]:
    numbers = hyper.numbers()
    fixed = hyper.model_dump(mode="json", exclude=set(numbers))
    places = {field: _place(getattr(hyper, field), one) for field, one in numbers.items()}
    return [type(hyper).__qualname__, fixed, places]


def _place(value: Any, number: Number) -> Any:
    if isinstance(value, tuple):
        return [_place(one, number) for one in value]
    return value if value in (number.link.low, number.link.high, number.identity) else "inside"
