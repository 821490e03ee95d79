"""The space of a search: how the values of each field that it varies are drawn.

`dimension` says what a dimension is; any subclass of `Dimension` works in an arm.
"""

from tuneparts.search.space.choice import Choice, plain
from tuneparts.search.space.dimension import (
    MOST_IN_GRID,
    Dimension,
    Int,
    Leaf,
    LogNormal,
    Normal,
    Uniform,
    Value,
)

__all__ = [
    "MOST_IN_GRID",
    "Choice",
    "Dimension",
    "Int",
    "Leaf",
    "LogNormal",
    "Normal",
    "Uniform",
    "Value",
    "plain",
]
