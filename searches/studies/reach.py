"""How far the hyperparameters of a run can travel: their rate times the hyper steps.

Adam moves an unconstrained number by at most about its rate in a step, so a method with few or
short hyper steps cannot reach ranges that another finds. The arms of a comparison therefore have
the same reach, unless a search finds the rate of each, or a paper prints it.
"""

from collections.abc import Mapping
from typing import TypeVar

import tuneparts as tp

C = TypeVar("C", bound=tp.Method)


def hyper_steps(config: tp.Method, num_classes: int = 10) -> int:
    """Count the hyper steps of a whole run; what an evidence step costs depends on the classes."""
    steps, every = config.steps, getattr(config, "hyper_every", 1)
    if isinstance(config, tp.Augerino):
        return steps
    if isinstance(config, tp.Laplace):
        cost = config.evidence_steps(num_classes)
        return _after_burn_in(steps, config.burn_in, config.evidence_every, cost)
    if isinstance(config, tp.LastLayer):
        return _after_burn_in(steps, config.burn_in, every, config.hyper_steps)
    if not isinstance(config, tp.Partitioned | tp.ValidationSet):
        return 0
    if config.finetune:
        steps = config.finetune.start(steps)
    if getattr(config, "hyper_share", 0):  # each step moves weights and hyperparameters
        return steps
    return steps // (every + (3 if getattr(config, "through_step", False) else 1))


def reach(config: tp.Method, num_classes: int = 10) -> float:
    """Hyper rate times hyper steps; 0 for a method that learns no hyperparameters."""
    return float(getattr(config, "hyper_lr", 0.0)) * hyper_steps(config, num_classes)


def with_reach(config: C, wanted: float) -> C:
    """The config with the rate at which its hyperparameters can travel so far."""
    return config.replaced({"hyper_lr": wanted / max(1, hyper_steps(config))})


def listed(arms: Mapping[str, tp.Method | tp.Arm], num_classes: int = 10) -> str:
    """The reach of every arm that learns hyperparameters, for the notes of a search."""
    groups: dict[str, list[str]] = {}
    for name, arm in arms.items():
        if found := reach(arm.config if isinstance(arm, tp.Arm) else arm, num_classes):
            groups.setdefault(f"{found:.3g}", []).append(name)
    words = "; ".join(f"{', '.join(names)} {found}" for found, names in groups.items())
    return f"\nReach (hyper rate times hyper steps): {words}.\n"


def _after_burn_in(steps: int, burn_in: float, every: int, cost: int) -> int:
    """Count the hyper steps of a run that takes one after every so many updates."""
    spent = since = found = 0
    while spent < steps:
        if since >= every and spent / steps >= burn_in and spent + cost <= steps:
            spent, since, found = spent + cost, 0, found + 1
        else:
            spent, since = spent + 1, since + 1
    return found
