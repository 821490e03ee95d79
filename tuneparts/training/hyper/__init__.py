"""Hypers: what a prediction depends on besides the net, learnt or given."""

from tuneparts.training.hyper.config import HypersConfig
from tuneparts.training.hyper.hypers import Hypers
from tuneparts.training.hyper.not_learnable import (
    HyperGradient,
    check_hypers,
    refuse_outside_likelihood,
)

__all__ = [
    "HyperGradient",
    "Hypers",
    "HypersConfig",
    "check_hypers",
    "refuse_outside_likelihood",
]
