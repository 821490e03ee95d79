"""Search algorithms: which trials a replicate runs.

`base` says what an algorithm is; any subclass of `Algorithm` works in an arm.
"""

from tuneparts.search.algorithms.base import (
    Algorithm,
    Cost,
    Fixed,
    GridSearch,
    Proposals,
    RandomSearch,
    draw,
    drawn_trials,
    stretch,
    whole_trial,
)
from tuneparts.search.algorithms.halving import Asha, Hyperband, SuccessiveHalving
from tuneparts.search.algorithms.pbt import Pbt
from tuneparts.search.algorithms.sampler import Optuna, OptunaSearch, Pruned, Sampled, Tpe

__all__ = [
    "Algorithm",
    "Asha",
    "Cost",
    "Fixed",
    "GridSearch",
    "Hyperband",
    "Optuna",
    "OptunaSearch",
    "Pbt",
    "Proposals",
    "Pruned",
    "RandomSearch",
    "Sampled",
    "SuccessiveHalving",
    "Tpe",
    "draw",
    "drawn_trials",
    "stretch",
    "whole_trial",
]
