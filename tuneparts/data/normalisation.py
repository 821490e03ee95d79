"""Mean and standard deviation of each channel or feature of a training part."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tuneparts.core.errors import DataError
from tuneparts.data.task import Inputs

_BLOCK = 4096
"""Examples that are read at a time: stored images stay on disk."""
Statistics = tuple[float, ...]


def channel_statistics(inputs: Inputs) -> tuple[Statistics, Statistics]:
    """Mean and standard deviation over examples and places; pixels count from 0 to 1.

    A feature that never varies has the standard deviation 1, and so becomes 0.

    Example:
        >>> channel_statistics(np.array([[1.0, 5.0], [3.0, 5.0]], np.float32))
        ((2.0, 5.0), (1.0, 1.0))
    """
    if inputs.dtype == np.int64:
        raise DataError(
            "`standardise` scales images and real numbers, but these inputs are whole numbers. "
            "Leave it out, or make them float32."
        )
    count = sum(len(rows) for rows in _rows(inputs))
    mean_C = np.sum([rows.sum(axis=0) for rows in _rows(inputs)], axis=0) / count
    squares = [((rows - mean_C) ** 2).sum(axis=0) for rows in _rows(inputs)]
    std_C = np.sqrt(np.sum(squares, axis=0) / count)
    return tuple(mean_C.tolist()), tuple(np.where(std_C > 0, std_C, 1.0).tolist())


def _rows(inputs: Inputs) -> Iterator[npt.NDArray[np.float64]]:
    """Blocks of the inputs with a column per channel or feature."""
    scale = 255.0 if inputs.dtype == np.uint8 else 1.0
    for start in range(0, len(inputs), _BLOCK):
        block = np.asarray(inputs[start : start + _BLOCK], dtype=np.float64) / scale
        yield np.moveaxis(block, 1, -1).reshape(-1, block.shape[1])
