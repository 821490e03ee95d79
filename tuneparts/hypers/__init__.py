"""Hypers: what a prediction depends on besides the net, learnt or given. No torch is imported here.

`hyper` says what a hyper is, `kinds` has ours, `config` puts them together; `hypers` predicts with
a net under them.
"""

from tuneparts.hypers.config import FixedConfig, HyperGradient, HypersConfig
from tuneparts.hypers.hyper import LOG, POSITIVE, REAL, UNIT, Call, Hyper, Number, Shapes
from tuneparts.hypers.kinds import (
    BUILT_IN,
    KINDS,
    BentonConfig,
    ColourConfig,
    DropoutConfig,
    Flip,
    InputNoise,
    LabelSmoothing,
    LilaConfig,
    MaskConfig,
    SchwoebelConfig,
    Temperature,
    Theta,
    WeightDecay,
    WeightPrior,
)

__all__ = [
    "BUILT_IN",
    "KINDS",
    "LOG",
    "POSITIVE",
    "REAL",
    "UNIT",
    "BentonConfig",
    "Call",
    "ColourConfig",
    "DropoutConfig",
    "FixedConfig",
    "Flip",
    "Hyper",
    "HyperGradient",
    "HypersConfig",
    "InputNoise",
    "LabelSmoothing",
    "LilaConfig",
    "MaskConfig",
    "Number",
    "SchwoebelConfig",
    "Shapes",
    "Temperature",
    "Theta",
    "WeightDecay",
    "WeightPrior",
]
