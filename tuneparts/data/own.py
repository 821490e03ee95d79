"""Your own data: a function that returns arrays, a data set, a table or an image folder.

The function is named by its import path, or by an entry point of an installed package. What it
returns is one set, which is split here, or a mapping of parts. See `docs/extending.md`.

Inputs come in three kinds, distinguished by their type: images as uint8 (N, C, H, W), whole numbers
such as tokens as int64, and everything else as float32. A table with named columns (pandas, polars,
Hugging Face `datasets`, dicts) is recognised by what it can do, so none of these is needed.
"""

import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tuneparts.core import import_path
from tuneparts.core.errors import ConfigError, DataError
from tuneparts.data._images import class_names, list_images
from tuneparts.data.target import Classes, Target, _checked, _from_anything
from tuneparts.data.task import Examples, StoredImages, Task, _Parts

if TYPE_CHECKING:
    from torch import Tensor

    from tuneparts.data.config import Data

_CHANNELS = (1, 3, 4)
_PARTS = {"train": "train", "val": "val", "validation": "val", "valid": "val", "test": "test"}
_FORMS = (
    "A data function returns (inputs, labels), a data set of (input, label) pairs with a length, "
    "(table, 'target column'), the path of an image folder, or a mapping of `train`, `val` and "
    "`test` to these."
)
_Given = tuple[Any, npt.NDArray[Any]]
"""Inputs and labels of one part, as they were brought."""
Arrays: TypeAlias = "Tensor | npt.NDArray[Any]"


def _check_arguments(path: str, arguments: Mapping[str, Any]) -> None:
    """Refuse a path that leads to no function, and arguments that it does not take."""
    try:
        inspect.signature(import_path.find(path)).bind(**arguments)
    except TypeError as error:
        raise ConfigError(
            f"`{path}` must be a function that is called with `arguments` = {dict(arguments)} "
            f"alone, but: {error}."
        ) from None


def read(path: str, config: "Data", draw: int | None) -> _Parts:
    """Call a data function; refuses what it returns if it cannot be learnt from."""
    try:
        make = import_path.find(path)
        # A function that takes a `seed` gets that of the search where data is drawn anew.
        takes_seed = draw is not None and "seed" in inspect.signature(make).parameters
        made = make(**{**({"seed": draw} if takes_seed else {}), **config.arguments})
    except Exception as error:  # whatever somebody else's function raises
        raise DataError(
            f"the data function `{path}` raised {type(error).__name__}: {error}"
        ) from error
    target = config.target
    found: dict[str, _Given] = {}
    examples: dict[str, Examples] = {}
    try:
        for part, thing in _by_part(made):
            found |= _read(part, thing, config)
        for part, (inputs, labels) in _numbered(found, target).items():
            try:
                examples[part] = _examples(inputs, labels, target)
            except ConfigError as error:
                raise ConfigError(f"in `{part}`: {error}") from error
        _check_alike(examples)
        labels = examples["train"].labels
        if len(labels) > 1 and bool((labels == labels[0]).all()):
            raise ConfigError(f"all {len(labels)} labels of `train` are {labels[0]}.")
    except ConfigError as error:
        raise DataError(f"the data of `{path}` cannot be used: {error}") from error
    num_classes = 0
    if isinstance(target, Classes):
        num_classes = max(target.count_outputs(part.labels) for part in examples.values())
    return _Parts(examples["train"], examples.get("test"), num_classes, examples.get("val"))


def _by_part(made: Any) -> list[tuple[str, Any]]:
    """What was returned for each part; one set is the training part that others are split off."""
    parts, column = made, None
    if isinstance(made, tuple) and len(made) == 2 and _is_column(made[1]):
        parts, column = made
    if not isinstance(parts, Mapping) or (column is not None and not set(parts) <= set(_PARTS)):
        return [("train", made)]
    names = [_PARTS.get(name, "") for name in parts]
    if "" in names or "train" not in names or len(set(names)) < len(names):
        raise ConfigError(
            "a mapping has the part `train`, and may have `val` and `test`, once each, but got "
            f"{', '.join(map(str, parts)) or 'nothing'}. {_FORMS}"
        )
    things = [thing if column is None else (thing, column) for thing in parts.values()]
    # `train` first: it says which classes there are.
    return sorted(zip(names, things, strict=True), key=lambda item: item[0] != "train")


def _is_column(value: Any) -> bool:
    is_list = isinstance(value, list) and bool(value)
    return isinstance(value, str) or (is_list and all(isinstance(one, str) for one in value))


def _read(part: str, thing: Any, config: "Data") -> dict[str, _Given]:
    if isinstance(thing, str | os.PathLike):
        return _of_folder(part, Path(thing), config)
    if isinstance(thing, tuple) and len(thing) == 2:
        return {part: _to_arrays(*thing) if _is_column(thing[1]) else (thing[0], plain(thing[1]))}
    names = _column_names(thing)
    if names is not None:
        raise ConfigError(
            f"`{part}` is a table with the columns {', '.join(names)}, but which of them is the "
            "target? Return (table, 'target column')."
        )
    is_map_style = hasattr(thing, "__getitem__") and hasattr(thing, "__len__")
    if not is_map_style or isinstance(thing, np.ndarray | tuple) or hasattr(thing, "detach"):
        raise ConfigError(f"`{part}` is a {type(thing).__name__}: {thing!r:.100}. {_FORMS}")
    items = [thing[number] for number in range(len(thing))]
    for number, item in enumerate(items):
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise ConfigError(
                f"a data set gives (input, label) for each number, but `{part}` gave "
                f"{item!r:.100} for {number}."
            )
    if not items:
        raise ConfigError(f"`{part}` is empty.")
    inputs, labels = ([plain(item[i]) for item in items] for i in (0, 1))
    return {part: (_stacked(inputs, "inputs"), _stacked(labels, "labels"))}


def _of_folder(part: str, path: Path, config: "Data") -> dict[str, _Given]:
    """The parts of an image folder that has `train/`, or all of one that has classes only."""
    looked = [place / path.expanduser() for place in (*config.roots, Path.cwd())]
    folder = next((one for one in looked if one.is_dir()), None)
    if folder is None:
        raise ConfigError(f"no image folder was found at {' or '.join(map(str, looked))}.")
    parts = {part: folder}
    if (folder / "train").is_dir():
        names = ("train", "val", "test")
        parts = {name: folder / name for name in names if (folder / name).is_dir()}
    classes = class_names(next(iter(parts.values())))
    found: dict[str, _Given] = {}
    for name, place in parts.items():
        files = list_images(place, classes)
        examples = files.examples(image_size=config.image_size, title=f"own-{name}")
        found[name] = (examples.inputs, np.asarray(classes)[examples.labels])
    return found


def _numbered(given: dict[str, _Given], target: Target) -> dict[str, _Given]:
    """Number the classes where labels are words, in alphabetical order over all parts."""
    if not all(y.dtype.kind in "US" for _, y in given.values()):
        return given
    names = np.unique(np.concatenate([y for _, y in given.values()]))
    if not target.counts_classes:
        raise ConfigError(
            f"labels that are words name classes, but the target is `{target.kind}` and the labels "
            f"are such as {', '.join(map(str, names[:3]))}. Use the target `classes`, or numbers."
        )
    return {part: (x, np.searchsorted(names, y)) for part, (x, y) in given.items()}


def _examples(
    inputs: Any, labels: npt.NDArray[Any], target: Target, *, keeps_bytes: bool = True
) -> Examples:
    x = inputs
    if not isinstance(inputs, StoredImages):
        x = given_inputs(inputs, keeps_bytes=keeps_bytes)
    num_labels = len(labels) if labels.ndim else 0
    if len(x) != num_labels or not num_labels:
        raise ConfigError(
            "there must be one label, or one row of labels, per input, but there are "
            f"{len(x)} inputs and {num_labels} labels."
        )
    return Examples(x, target.prepared(labels))


def _check_alike(examples: Mapping[str, Examples]) -> None:
    for name, part in examples.items():
        for what in ("inputs", "labels"):
            one, other = getattr(part, what), getattr(examples["train"], what)
            if (one.shape[1:], one.dtype) != (other.shape[1:], other.dtype):
                raise ConfigError(
                    f"{what} of all parts have one shape and type, but those of `{name}` are "
                    f"{one.dtype} {one.shape[1:]}, of `train` {other.dtype} {other.shape[1:]}."
                )


def plain(values: Any) -> npt.NDArray[Any]:
    """Any array, tensor or nested list as an array; an image of Pillow's has its colours first."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    array = np.asarray(values)
    if hasattr(values, "getbands"):  # (H, W) or (H, W, C)
        array = array[None] if array.ndim == 2 else np.moveaxis(array, -1, 0)
    return array


def _stacked(values: list[npt.NDArray[Any]], what: str) -> npt.NDArray[Any]:
    for number, value in enumerate(values):
        if value.shape != values[0].shape:
            raise ConfigError(
                f"{what}: of shape {values[0].shape} in example 0, but example {number} is "
                f"{value.shape}. Pad, crop or scale them."
            )
    return np.stack(values)


def _column_names(table: Any) -> list[str] | None:
    """Names of the columns; None for what is no table."""
    if isinstance(table, Mapping):
        return [str(name) for name in table]
    names = getattr(table, "column_names", None)
    if names is None:
        names = getattr(table, "columns", None)
    return None if names is None or callable(names) else [str(name) for name in names]


def _to_arrays(table: Any, target: str | Sequence[str]) -> tuple[Any, npt.NDArray[Any]]:
    """Inputs and labels of a table: columns of numbers as (N, D), or one of arrays as (N, ...)."""
    names = _column_names(table) or []
    targets = [target] if isinstance(target, str) else list(target)
    features = [name for name in names if name not in targets]
    if not features or not set(targets) <= set(names):
        raise ConfigError(
            f"a table has the target's column and at least one other, but `{', '.join(targets)}` "
            f"was asked of the columns {', '.join(names)} of a {type(table).__name__}."
        )
    try:
        labels = [_column(table, name) for name in targets]
        inputs = [_column(table, name) for name in features]
        for name, column in zip(features, inputs, strict=True):
            if column.dtype.kind not in "biuf" or (column.ndim > 1 and len(inputs) > 1):
                raise ValueError(
                    f"`{name}` holds {column.dtype} such as {column.ravel()[:1]}, not numbers, nor "
                    "arrays in one column alone. Drop it, or code it as numbers"
                )
        y = labels[0] if isinstance(target, str) else np.stack(labels, axis=1)
        if inputs[0].ndim > 1:
            return inputs[0], y
        return np.stack([column.astype(np.float64) for column in inputs], axis=1), y
    except (ValueError, TypeError, OverflowError) as error:
        raise ConfigError(f"in the table of {', '.join(names)}: {error!s:.300}.") from error


def _column(table: Any, name: str) -> npt.NDArray[Any]:
    values = table[name]
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values
    cells = [] if isinstance(values, str | bytes | Mapping) else list(values)
    if not cells:
        raise ValueError(f"`{name}` is {values!r:.100}, not a cell for each example")
    if all(isinstance(cell, str) for cell in cells):
        return np.asarray(cells, dtype=str)
    return _stacked([plain(cell) for cell in cells], f"cells of `{name}`")


def given_inputs(values: Arrays, *, keeps_bytes: bool = False) -> npt.NDArray[Any]:
    """Inputs (N, ...) as nets take them, float32 or int64; images uint8 if `keeps_bytes`."""
    array = plain(values)
    if array.dtype == np.bool_ or (array.dtype == np.uint8 and not keeps_bytes):
        array = array.astype(np.float32)
    if array.dtype != np.uint8 or array.ndim != 4:
        return _checked(array, "inputs", least_axes=2)
    if array.shape[1] not in _CHANNELS and array.shape[3] in _CHANNELS:
        raise ConfigError(
            f"images are (N, C, H, W), but got {array.shape}, which looks like (N, H, W, C). Use "
            "`images.transpose(0, 3, 1, 2)`."
        )
    return array


def given_task(
    train: tuple[Arrays, Arrays],
    val: tuple[Arrays, Arrays] | None = None,
    *,
    target: Any = "classes",
) -> Task:
    """A task of inputs, scaled as the net wants them, and labels; without test data."""
    aim: Target = _from_anything(target)
    given = {"train": train} if val is None else {"train": train, "val": val}
    parts = {
        name: _examples(inputs, plain(labels), aim, keeps_bytes=False)
        for name, (inputs, labels) in given.items()
    }
    _check_alike(parts)
    nothing = parts["train"].subset(np.arange(0))
    num_outputs = max(aim.count_outputs(part.labels) for part in parts.values())
    num_classes = num_outputs if isinstance(aim, Classes) else 0
    own = parts["train"], parts.get("val", nothing), nothing
    return Task("given", *own, num_classes, mean=(0.0,), std=(1.0,), target=aim)
