"""Arrays and tables that somebody brought along, as inputs and labels that learners take.

Inputs come in three kinds, distinguished by their type: images as uint8 (N, C, H, W), whole numbers
such as tokens as int64, and everything else as float32. A table with named columns (pandas, polars,
Hugging Face `datasets`, dicts) is recognised by what it can do, so none of these is needed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tuneparts.core.errors import ConfigError, TunepartsError

_CHANNELS = (1, 3, 4)


def plain(values: Any) -> npt.NDArray[Any]:
    """Any array, tensor or nested list as an array; an image of Pillow's has its colours first."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    array = np.asarray(values)
    if hasattr(values, "getbands"):  # (H, W) or (H, W, C)
        array = array[None] if array.ndim == 2 else np.moveaxis(array, -1, 0)
    return array


def stacked(values: list[npt.NDArray[Any]], what: str) -> npt.NDArray[Any]:
    """Stack the arrays of all examples, which must have one shape."""
    for number, value in enumerate(values):
        if value.shape != values[0].shape:
            raise ConfigError(
                f"{what}: of shape {values[0].shape} in example 0, but example {number} is "
                f"{value.shape}. Pad, crop or scale them."
            )
    return np.stack(values)


def checked_inputs(values: Any, *, keeps_bytes: bool = True) -> npt.NDArray[Any]:
    """Inputs (N, ...) of one of the three kinds; refuses any other.

    uint8 images stay so, to be scaled to [0, 1] batch by batch, unless `keeps_bytes` is false.

    Example:
        >>> checked_inputs([[1, 2], [3, 4]]).dtype, checked_inputs([[0.5], [1.5]]).dtype
        (dtype('int64'), dtype('float32'))
    """
    array = plain(values)
    if array.dtype == np.bool_ or (array.dtype == np.uint8 and not keeps_bytes):
        array = array.astype(np.float32)
    if array.dtype == np.uint8 and array.ndim == 4:
        if array.shape[1] not in _CHANNELS and array.shape[3] in _CHANNELS:
            raise ConfigError(
                f"images are (N, C, H, W), but got {array.shape}, which looks like (N, H, W, C). "
                "Use `images.transpose(0, 3, 1, 2)`."
            )
        return array
    return checked(array, "inputs", least_axes=2)


def checked(values: npt.NDArray[Any], what: str, *, least_axes: int = 1) -> npt.NDArray[Any]:
    """Whole numbers as int64, real ones as float32; refuses what are no finite numbers."""
    if values.ndim < least_axes or values.dtype.kind not in "biuf":
        raise ConfigError(
            f"{what} are numbers, one or more for each example, but got {what} {values.shape} of "
            f"type {values.dtype}."
        )
    if values.dtype.kind != "f":
        return values.astype(np.int64, copy=False)
    real = values.astype(np.float32, copy=False)
    wrong = ~np.isfinite(real)
    if wrong.any():
        example, *place = np.argwhere(wrong)[0].tolist()
        raise ConfigError(
            f"{what} must be finite in float32, but {wrong.sum()} of them are NaN, infinite or too "
            f"large, the first in example {example} at {place}. Drop these or fill the gaps."
        )
    return real


def column_names(table: Any) -> list[str] | None:
    """Names of the columns; None for what is no table."""
    if isinstance(table, Mapping):
        return [str(name) for name in table]
    names = getattr(table, "column_names", None)
    if names is None:
        names = getattr(table, "columns", None)
    return None if names is None or callable(names) else [str(name) for name in names]


def to_arrays(table: Any, target: str | Sequence[str]) -> tuple[Any, npt.NDArray[Any]]:
    """Inputs and labels of a table.

    Columns of numbers become the features (N, D), in the order of the table. A single column whose
    cells are arrays, lists or images becomes the inputs (N, ...) itself. The target is the column
    of the labels, or several.

    Example:
        >>> x, y = to_arrays({"a": [1, 2], "b": [0.5, 1.5], "price": [10.0, 20.0]}, "price")
        >>> x.tolist(), y.tolist()
        ([[1.0, 0.5], [2.0, 1.5]], [10.0, 20.0])
    """
    names = column_names(table) or []
    targets = [target] if isinstance(target, str) else list(target)
    features = [name for name in names if name not in targets]
    if not features or not set(targets) <= set(names):
        raise ConfigError(
            f"a table has the target's column and at least one other, but `{', '.join(targets)}` "
            f"was asked of the columns {', '.join(names)} of a {type(table).__name__}."
        )
    labels = [_column(table, name) for name in targets]
    columns = {name: _column(table, name) for name in features}
    for name, column in columns.items():
        if column.dtype.kind not in "biuf" or (column.ndim > 1 and len(columns) > 1):
            raise ConfigError(
                f"column `{name}` holds {column.dtype} such as {column.ravel()[:1]}, but inputs "
                "are columns of numbers, or one column of arrays. Drop it, or code it as numbers."
            )
    inputs = list(columns.values())
    try:
        y = labels[0] if isinstance(target, str) else np.stack(labels, axis=1)
        if inputs[0].ndim > 1:
            return inputs[0], y
        return np.stack([column.astype(np.float64) for column in inputs], axis=1), y
    except (ValueError, TypeError, OverflowError) as error:
        raise _odd(", ".join(names), error) from error


def _column(table: Any, name: str) -> npt.NDArray[Any]:
    values = table[name]
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values
    is_column = isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping)
    cells = list(values) if is_column else []
    if not cells:
        raise _odd(name, f"{values!r}")
    if all(isinstance(cell, str) for cell in cells):
        return np.asarray(cells, dtype=str)
    try:
        return stacked([plain(cell) for cell in cells], f"cells of column `{name}`")
    except (ValueError, TypeError, OverflowError) as error:
        raise error if isinstance(error, TunepartsError) else _odd(name, error) from error


def _odd(name: str, why: object) -> ConfigError:
    return ConfigError(
        f"column `{name}` does not hold a cell of one kind for each example: {why!s:.200}."
    )
