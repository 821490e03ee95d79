"""Search algorithms: which trials a replicate runs, one class in one file each.

`base` says what an algorithm is; any subclass of `Algorithm` works in an arm.
"""

from tuneparts.search.algorithms.asha import Asha, promoted
from tuneparts.search.algorithms.base import (
    Algorithm,
    Proposals,
    Timed,
    draw,
    drawn_trials,
    stretch,
    whole_trial,
)
from tuneparts.search.algorithms.halving import Hyperband, SuccessiveHalving, beside, rungs
from tuneparts.search.algorithms.pbt import Pbt, exploit, explore
from tuneparts.search.algorithms.plain import Fixed, GridSearch, RandomSearch
from tuneparts.search.algorithms.pruned import Pruned
from tuneparts.search.algorithms.sampler import Optuna, OptunaSearch, Tpe

__all__ = [
    "Algorithm",
    "Asha",
    "Fixed",
    "GridSearch",
    "Hyperband",
    "Optuna",
    "OptunaSearch",
    "Pbt",
    "Proposals",
    "Pruned",
    "RandomSearch",
    "SuccessiveHalving",
    "Timed",
    "Tpe",
    "beside",
    "draw",
    "drawn_trials",
    "exploit",
    "explore",
    "promoted",
    "rungs",
    "stretch",
    "whole_trial",
]
