"""Learnable affine augmentation in three parametrisations with one interface."""

from tuneparts.augment.affine.augmentation import Affine, AffineConfig
from tuneparts.augment.affine.benton import Benton, BentonConfig
from tuneparts.augment.affine.lila import Lila, LilaConfig
from tuneparts.augment.affine.schwoebel import Schwoebel, SchwoebelConfig, Theta

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
