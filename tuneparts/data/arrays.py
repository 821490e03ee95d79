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
                f"{what} of all examples must have one shape, but that of example 0 is "
                f"{values[0].shape} and that of example {number} is {value.shape}. Pad, crop or "
                "scale them."
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
    if array.ndim < 2 or array.dtype.kind not in "biuf":
        raise ConfigError(
            "inputs are numbers in an array (N, ...) with at least one number for each of N "
            f"examples, but got inputs {array.shape} of type {array.dtype}."
        )
    if array.dtype == np.uint8 and not keeps_bytes:
        return array.astype(np.float32)
    if array.dtype == np.uint8 and array.ndim == 4:
        if array.shape[1] not in _CHANNELS and array.shape[3] in _CHANNELS:
            raise ConfigError(
                f"images are (N, C, H, W), but got {array.shape}, which looks like (N, H, W, C). "
                "Use `images.transpose(0, 3, 1, 2)`."
            )
        return array
    if array.dtype.kind in "iu":
        return array.astype(np.int64, copy=False)
    real = array.astype(np.float32, copy=False)
    _refuse_not_finite(real, "inputs")
    return real


def checked_labels(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Labels (N, ...) as int64 or float32; refuses what are no finite numbers."""
    if values.ndim < 1 or values.dtype.kind not in "biuf":
        raise ConfigError(
            f"labels are numbers, one or more for each example, but got labels {values.shape} of "
            f"type {values.dtype}."
        )
    if values.dtype.kind != "f":
        return values.astype(np.int64, copy=False)
    real = values.astype(np.float32, copy=False)
    _refuse_not_finite(real, "labels")
    return real


def _refuse_not_finite(values: npt.NDArray[np.float32], what: str) -> None:
    wrong = ~np.isfinite(values)
    if wrong.any():
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        place = f"example {first[0]}" + (f", place {first[1:]}" if first[1:] else "")
        raise ConfigError(
            f"{what} must be finite in float32, but {int(wrong.sum())} of them are NaN, infinite "
            f"or too large, the first at {place}. Drop these examples or fill the gaps."
        )


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
    names = column_names(table)
    if names is None:
        raise ConfigError(
            f"a table has named columns, but got a {type(table).__name__} with the target "
            f"{target!r}."
        )
    targets = [target] if isinstance(target, str) else list(target)
    missing = [name for name in targets if name not in names]
    features = [name for name in names if name not in targets]
    if missing or not features:
        raise ConfigError(
            f"a table has the target's column and at least one other, but `{', '.join(targets)}` "
            f"was asked of the columns {', '.join(names)}."
        )
    labels = [_column(table, name) for name in targets]
    inputs = {name: _column(table, name) for name in features}
    if isinstance(target, str):
        return _inputs(inputs), labels[0]
    if len({label.shape for label in labels}) != 1:
        raise _odd(", ".join(targets), "their lengths differ")
    return _inputs(inputs), np.stack(labels, axis=1)


def _inputs(columns: dict[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    for name, column in columns.items():
        if column.dtype.kind not in "biuf":
            raise ConfigError(
                f"columns of inputs hold numbers, but `{name}` holds {column.dtype} such as "
                f"{column.flat[0]!r:.50}. Drop it, or code it as numbers."
            )
        if column.ndim > 1 and len(columns) == 1:
            return column
        if column.ndim > 1:
            raise ConfigError(
                "inputs are columns of numbers, or one column of arrays alone, but "
                f"`{name}` holds arrays beside {len(columns) - 1} other columns. Drop the others."
            )
    try:
        return np.stack([column.astype(np.float64) for column in columns.values()], axis=1)
    except (ValueError, TypeError, OverflowError) as error:
        raise _odd(", ".join(columns), str(error)) from error


def _column(table: Any, name: str) -> npt.NDArray[Any]:
    values = table[name]
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise _odd(name, repr(values))
    cells = list(values)
    if not cells:
        raise _odd(name, "it is empty")
    if all(isinstance(cell, str) for cell in cells):
        return np.asarray(cells, dtype=str)
    try:
        return stacked([plain(cell) for cell in cells], f"cells of column `{name}`")
    except (ValueError, TypeError, OverflowError) as error:
        if isinstance(error, TunepartsError):
            raise
        raise _odd(name, str(error)) from error


def _odd(name: str, why: str) -> ConfigError:
    return ConfigError(
        f"a column of a table holds a cell of one kind for each example, but `{name}` does not: "
        f"{why:.200}."
    )
