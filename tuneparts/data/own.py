"""Data of one's own: a function that returns arrays, a data set, a table or an image folder.

The function is named by its import path, or by an entry point of an installed package. What it
returns is one set, which is split here, or a mapping of parts. See `docs/extending.md`.
"""

import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tuneparts.core import import_path
from tuneparts.core.errors import ConfigError, DataError
from tuneparts.data.arrays import checked_inputs, column_names, plain, stacked, to_arrays
from tuneparts.data.images import class_names, list_images
from tuneparts.data.source import Parts, roots
from tuneparts.data.target import Classes, Target
from tuneparts.data.task import Examples, StoredImages, Task

if TYPE_CHECKING:
    from torch import Tensor

    from tuneparts.data.config import DataConfig

_PARTS = {"train": "train", "val": "val", "validation": "val", "valid": "val", "test": "test"}
_FORMS = (
    "A data function returns (inputs, labels), a data set of (input, label) pairs with a length, "
    "(table, 'target column'), the path of an image folder, or a mapping of `train`, `val` and "
    "`test` to these."
)

_Given = tuple[Any, npt.NDArray[Any]]
"""Inputs and labels of one part, as they were brought."""
Arrays: TypeAlias = "Tensor | npt.NDArray[Any]"


def check_arguments(path: str, arguments: Mapping[str, Any]) -> None:
    """Refuse a path that leads to no function, and arguments that it does not take."""
    function = import_path.find(path)
    if not callable(function):
        raise ConfigError(f"own data is named by a function, but `{path}` is {function!r:.100}.")
    signature = inspect.signature(function)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise ConfigError(
            f"a data function is called with `arguments` alone, but `{path}` takes {signature} "
            f"and got {dict(arguments)}: {error}."
        ) from None


def read(path: str, config: "DataConfig", draw: int | None) -> Parts:
    """Call a data function; refuses what it returns if it cannot be learnt from."""
    try:
        make = import_path.find(path)
        # A function that takes a `seed` gets that of a replicate that draws anew.
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
    return Parts(examples["train"], examples.get("test"), num_classes, examples.get("val"))


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


def _read(part: str, thing: Any, config: "DataConfig") -> dict[str, _Given]:
    if isinstance(thing, str | os.PathLike):
        return _of_folder(part, Path(thing), config)
    if isinstance(thing, tuple) and len(thing) == 2:
        return {part: to_arrays(*thing) if _is_column(thing[1]) else (thing[0], plain(thing[1]))}
    names = column_names(thing)
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
    return {part: (stacked(inputs, "inputs"), stacked(labels, "labels"))}


def _of_folder(part: str, path: Path, config: "DataConfig") -> dict[str, _Given]:
    """The parts of an image folder that has `train/`, or all of one that has classes only."""
    looked = [place / path.expanduser() for place in (*roots(config.root), Path.cwd())]
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
        x = checked_inputs(inputs, keeps_bytes=keeps_bytes)
    num_labels = len(labels) if labels.ndim else 0
    if len(x) != num_labels or not num_labels:
        raise ConfigError(
            "there must be one label, or one row of labels, per input, but there are "
            f"{len(x)} inputs and {num_labels} labels."
        )
    return Examples(x, target.prepared(labels))


def _check_alike(examples: Mapping[str, Examples]) -> None:
    """Refuse parts that differ in shape or type."""
    for name, part in examples.items():
        for what in ("inputs", "labels"):
            one, other = getattr(part, what), getattr(examples["train"], what)
            if (one.shape[1:], one.dtype) != (other.shape[1:], other.dtype):
                raise ConfigError(
                    f"{what} of all parts have one shape and type, but those of `{name}` are "
                    f"{one.dtype} {one.shape[1:]}, of `train` {other.dtype} {other.shape[1:]}."
                )


def given_inputs(values: Arrays) -> npt.NDArray[Any]:
    """Inputs as nets are called with them: float32, or int64 for whole numbers but bytes."""
    return checked_inputs(values, keeps_bytes=False)


def given_examples(inputs: Arrays, labels: Arrays, target: Target | None = None) -> Examples:
    """Inputs (N, ...), scaled as the net wants them, with labels of a target; classes if None."""
    return _examples(inputs, plain(labels), target or Classes(), keeps_bytes=False)


def given_task(
    train: Examples, val: Examples | None = None, *, target: Target | None = None
) -> Task:
    """A task of examples that are scaled as the net wants them, without test data."""
    target = target or Classes()
    nothing = train.subset(np.arange(0))
    val = nothing if val is None else val
    _check_alike({"train": train, "val": val})
    num_outputs = max(target.count_outputs(part.labels) for part in (train, val) if len(part))
    num_classes = num_outputs if isinstance(target, Classes) else 0
    return Task("given", train, val, nothing, num_classes, mean=(0.0,), std=(1.0,), target=target)
