"""SuperWeight networks: several nets from one parameter budget (Teterwak et al. 2024).

One's own nets become an ensemble by `fit([net, net], x, y, budget=...)`.
"""

from tuneparts.methods.superweights.fitted import FittedEnsemble, Sizes, fit

__all__ = ["FittedEnsemble", "Sizes", "fit"]
