"""The space of a search: how the values of each field that it varies are drawn.

`dimension` says what a dimension is; any subclass of `Dimension` works in an arm.
"""

from tuneparts.search.space.choice import Choice
from tuneparts.search.space.dimension import Dimension, Leaf, Value
from tuneparts.search.space.normal import LogNormal, Normal
from tuneparts.search.space.ranges import Int, Uniform

__all__ = [
    "Choice",
    "Dimension",
    "Int",
    "Leaf",
    "LogNormal",
    "Normal",
    "Uniform",
    "Value",
]
