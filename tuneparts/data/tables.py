"""Tables with named columns as arrays: pandas, polars, Hugging Face `datasets`, dicts.

A table is recognised by what it can do, so none of these libraries is needed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tuneparts.core.errors import ConfigError, TunepartsError
from tuneparts.data.arrays import plain, stacked


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
    cells are arrays, lists or images becomes the inputs (N, ...) itself.

    Args:
        table: anything with named columns.
        target: the column of the labels, or several.

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
    if len(columns) == 1:
        (only,) = columns.values()
        if only.ndim > 1:
            return only
    for name, column in columns.items():
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
