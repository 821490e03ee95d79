"""Hypers: what a prediction depends on besides the net, learnt or given."""

from tuneparts.hypers.config import HypersConfig
from tuneparts.hypers.hypers import Hypers
from tuneparts.hypers.not_learnable import HyperGradient, check_hypers, refuse_outside_likelihood

__all__ = [
    "HyperGradient",
    "Hypers",
    "HypersConfig",
    "check_hypers",
    "refuse_outside_likelihood",
]
