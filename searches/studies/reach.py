"""How far the hypers of a run can travel: its hyper rate times its hyper steps.

Adam moves an unconstrained number by at most about its rate in a step, so that a method with few or
short hyper steps cannot reach ranges that another finds. The arms of a comparison therefore have
the same reach, unless a search finds the rate of each, or a paper prints it.
"""

import math
from collections.abc import Iterable
from typing import TypeVar

from tuneparts.methods.baselines.config import (
    LINKED_STEPS,
    Augerino,
    Laplace,
    LastLayer,
    ValidationSet,
)
from tuneparts.methods.partitioned import Partitioned
from tuneparts.methods.partitioned.config import ReleasedConfig
from tuneparts.search.arm import Arm
from tuneparts.training.config import Method

C = TypeVar("C", bound=Method)


def hyper_steps(config: Method, num_classes: int = 10) -> int:
    """Count the steps that move the hypers in a whole run; 0 for a method that has none.

    Args:
        config: of the method.
        num_classes: of the data, on which the cost of an evidence step depends.
    """
    if isinstance(config, Augerino):
        return config.steps
    if isinstance(config, Laplace):
        cost = config.evidence_steps(num_classes)
        return _after_burn_in(config.steps, config.burn_in, config.evidence_every, cost)
    if isinstance(config, LastLayer):
        every = config.hyper_every
        return _after_burn_in(config.steps, config.burn_in, every, config.hyper_steps)
    if isinstance(config, ValidationSet):
        stage, cost = config.finetune, LINKED_STEPS - 1 if config.through_step else 1
    elif isinstance(config, Partitioned | ReleasedConfig):
        stage, cost = getattr(config, "release", None), 1
    else:
        return 0
    steps = config.steps if stage is None else stage.start(config.steps)
    if getattr(config, "hyper_share", 0):  # each step moves weights and hypers
        return steps
    return max(0, math.ceil((steps - config.hyper_every - cost + 1) / (config.hyper_every + cost)))


def reach(config: Method, num_classes: int = 10) -> float:
    """Hyper rate times hyper steps; 0 for a method that learns no hypers."""
    return float(getattr(config, "hyper_lr", 0.0)) * hyper_steps(config, num_classes)


def with_reach(config: C, wanted: float, num_classes: int = 10) -> C:
    """The config with the rate at which its hypers can travel so far."""
    return config.replaced({"hyper_lr": wanted / max(1, hyper_steps(config, num_classes))})


def listed(arms: Iterable[Arm], num_classes: int = 10) -> str:
    """The reach of every arm that learns hypers, as a paragraph for the notes of a search."""
    groups: dict[str, list[str]] = {}
    for arm in arms:
        if found := reach(arm.config, num_classes):
            groups.setdefault(f"{found:.3g}", []).append(arm.name)
    words = "; ".join(f"{', '.join(names)} {found}" for found, names in groups.items())
    return f"Reach (hyper rate times hyper steps): {words}."


def _after_burn_in(steps: int, burn_in: float, every: int, cost: int) -> int:
    """Steps of so many steps that come after every so many updates, by counting."""
    spent = since = found = 0
    while spent < steps:
        if since >= every and spent / steps >= burn_in and spent + cost <= steps:
            spent, since, found = spent + cost, 0, found + 1
        else:
            spent, since = spent + 1, since + 1
    return found
