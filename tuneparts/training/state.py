"""Optimiser state without what the config determines, and without shared memory."""

import copy
from collections.abc import Mapping
from typing import Any

import torch


def optimiser_state(optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """Moments and counters; learning rates and decay stay with the config."""
    state: dict[str, Any] = optimiser.state_dict()["state"]
    return state


def load_optimiser_state(optimiser: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Continue with these moments and counters under the optimiser's own settings.

    `Optimizer.load_state_dict` keeps references to the tensors it is given: two learners would
    share their momentum. Hence the copy.
    """
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": copy.deepcopy(dict(state)), "param_groups": groups})
