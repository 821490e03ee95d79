"""Learnable affine augmentation in three parametrisations with one interface."""

from tuneparts.hypers.affine.augmentation import Affine, AffineConfig
from tuneparts.hypers.affine.benton import Benton, BentonConfig
from tuneparts.hypers.affine.lila import Lila, LilaConfig
from tuneparts.hypers.affine.schwoebel import Schwoebel, SchwoebelConfig, Theta

__all__ = [
    "Affine",
    "AffineConfig",
    "Benton",
    "BentonConfig",
    "Lila",
    "LilaConfig",
    "Schwoebel",
    "SchwoebelConfig",
    "Theta",
]
