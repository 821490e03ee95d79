"""Data of one's own: a function that returns arrays, a data set, a table or an image folder.

The function is named by its import path, or by an entry point of an installed package. What it
returns is one set, which is split here, or a mapping of parts. See `docs/extending.md`.
"""

import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tuneparts.core import import_path
from tuneparts.core.errors import ConfigError, DataError
from tuneparts.data.arrays import checked_inputs, column_names, plain, stacked, to_arrays
from tuneparts.data.images import class_names, list_images
from tuneparts.data.source import Parts, Request
from tuneparts.data.target import Classes, Target
from tuneparts.data.task import Examples, StoredImages, Task

if TYPE_CHECKING:
    from torch import Tensor

_PARTS = {"train": "train", "val": "val", "validation": "val", "valid": "val", "test": "test"}
_FORMS = (
    "A data function returns (inputs, labels), a data set of (input, label) pairs with a length, "
    "(table, 'target column'), the path of an image folder, or a mapping of `train`, `val` and "
    "`test` to these."
)

_Given = tuple[Any, npt.NDArray[Any]]
"""Inputs and labels of one part, as they were brought."""


def _function(path: str) -> Callable[..., Any]:
    found = import_path.find(path)
    if not callable(found):
        raise ConfigError(f"own data is named by a function, but `{path}` is {found!r:.100}.")
    return found  # type: ignore[no-any-return]


def check_arguments(path: str, arguments: Mapping[str, Any]) -> None:
    """Refuse a path that leads to no function, and arguments that it does not take."""
    signature = inspect.signature(_function(path))
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise ConfigError(
            f"a data function is called with `arguments` alone, but `{path}` takes {signature} "
            f"and got {dict(arguments)}: {error}."
        ) from None


def read(path: str, request: Request) -> Parts:
    """Call a data function; refuses what it returns if it cannot be learnt from."""
    try:
        make = _function(path)
        # A function that takes a `seed` gets that of a replicate that draws anew.
        takes_seed = "seed" in inspect.signature(make).parameters
        drawn = {"seed": request.seed} if request.is_drawn and takes_seed else {}
        made = make(**{**drawn, **request.arguments})
    except Exception as error:  # whatever somebody else's function raises
        raise DataError(
            f"the data function `{path}` raised {type(error).__name__}: {error}"
        ) from error
    try:
        found = [pair for part, thing in _by_part(made) for pair in _read(part, thing, request)]
        given = _numbered(dict(found), request.target)
        examples = {part: _examples(part, *one, request.target) for part, one in given.items()}
        _check(examples)
    except ConfigError as error:
        raise DataError(f"the data of `{path}` cannot be used: {error}") from error
    num_classes = 0
    if isinstance(request.target, Classes):
        num_classes = max(request.target.count_outputs(part.labels) for part in examples.values())
    return Parts(examples["train"], examples.get("test"), num_classes, examples.get("val"))


def _by_part(made: Any) -> list[tuple[str, Any]]:
    """What was returned for each part; one set is the training part that others are split off."""
    parts, column = made, None
    if isinstance(made, tuple) and len(made) == 2 and _is_column(made[1]):
        parts, column = made
    if not isinstance(parts, Mapping) or (column is not None and not set(parts) <= set(_PARTS)):
        return [("train", made)]
    unknown = sorted(str(name) for name in set(parts) - set(_PARTS))
    names = [_PARTS[name] for name in parts if name in _PARTS]
    if unknown or "train" not in names or len(set(names)) < len(names):
        raise ConfigError(
            "a mapping has the part `train`, and may have `val` and `test`, once each, but got "
            f"{', '.join(map(str, parts)) or 'nothing'}. {_FORMS}"
        )
    things = [thing if column is None else (thing, column) for thing in parts.values()]
    # `train` first: it says which classes there are.
    return sorted(zip(names, things, strict=True), key=lambda item: item[0] != "train")


def _is_column(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)
    )


def _read(part: str, thing: Any, request: Request) -> list[tuple[str, _Given]]:
    if isinstance(thing, str | os.PathLike):
        return _of_folder(part, Path(thing), request)
    if isinstance(thing, tuple):
        if len(thing) != 2:
            raise ConfigError(f"`{part}` is a tuple of {len(thing)}. {_FORMS}")
        if _is_column(thing[1]):
            return [(part, to_arrays(*thing))]
        return [(part, (thing[0], plain(thing[1])))]
    if column_names(thing) is not None:
        names = ", ".join(column_names(thing) or ())
        raise ConfigError(
            f"`{part}` is a table with the columns {names}, but which of them is the target? "
            "Return (table, 'target column')."
        )
    is_map_style = hasattr(thing, "__getitem__") and hasattr(thing, "__len__")
    if not is_map_style or isinstance(thing, np.ndarray) or hasattr(thing, "detach"):
        raise ConfigError(f"`{part}` is a {type(thing).__name__}: {thing!r:.100}. {_FORMS}")
    return [(part, _of_dataset(part, thing))]


def _of_dataset(part: str, dataset: Any) -> _Given:
    inputs, labels = [], []
    for number in range(len(dataset)):
        item = dataset[number]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise ConfigError(
                f"a data set gives (input, label) for each number, but `{part}` gave "
                f"{item!r:.100} for {number}."
            )
        inputs.append(plain(item[0]))
        labels.append(plain(item[1]))
    if not inputs:
        raise ConfigError(f"every part has an example, but `{part}` is empty.")
    return stacked(inputs, "inputs"), stacked(labels, "labels")


def _of_folder(part: str, path: Path, request: Request) -> list[tuple[str, _Given]]:
    """The parts of an image folder that has `train/`, or all of one that has classes only."""
    path = path.expanduser()
    looked = [place / path for place in (*request.roots, Path.cwd())]
    folder = next((one for one in looked if one.is_dir()), None)
    if folder is None:
        raise ConfigError(
            f"an image folder is there, but none was found at {' or '.join(map(str, looked))}."
        )
    parts = {part: folder}
    if (folder / "train").is_dir():
        parts = {name: folder / name for name in ("train", "val", "test")}
    classes = class_names(next(iter(parts.values())))
    found: list[tuple[str, _Given]] = []
    for name, place in parts.items():
        if place.is_dir():
            files = list_images(place, classes)
            examples = files.examples(image_size=request.image_size, title=f"own-{name}")
            found.append((name, (examples.inputs, np.asarray(classes)[examples.labels])))
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


def _examples(part: str, inputs: Any, labels: npt.NDArray[Any], target: Target) -> Examples:
    try:
        x = inputs if isinstance(inputs, StoredImages) else checked_inputs(inputs)
        if len(x) != len(labels) or not len(x):
            raise ConfigError(
                "every example has an input and a label, and every part has an example, but there "
                f"are {len(x)} inputs and {len(labels)} labels."
            )
        return Examples(x, target.prepared(labels))
    except ConfigError as error:
        raise ConfigError(f"in `{part}`: {error}") from error


def _check(examples: Mapping[str, Examples]) -> None:
    """Refuse parts that differ in shape or type, and training labels that are all the same."""
    train = examples["train"]
    for name, part in examples.items():
        for what, one, other in (
            ("inputs", part.inputs, train.inputs),
            ("labels", part.labels, train.labels),
        ):
            if (one.shape[1:], one.dtype) != (other.shape[1:], other.dtype):
                raise ConfigError(
                    f"{what} of all parts have one shape and type, but those of `{name}` are "
                    f"{one.dtype} {one.shape[1:]} and those of `train` {other.dtype} "
                    f"{other.shape[1:]}."
                )
    labels = train.labels
    if len(labels) > 1 and bool((labels == labels[0]).all()):
        raise ConfigError(
            "there is something to learn where labels differ, but all "
            f"{len(labels)} labels of `train` are {labels[0]}. Look at the function."
        )


Arrays: TypeAlias = "Tensor | npt.NDArray[Any]"


def given_inputs(values: Arrays) -> npt.NDArray[Any]:
    """Inputs as nets are called with them: float32, or int64 for whole numbers but bytes."""
    return checked_inputs(values, keeps_bytes=False)


def given_examples(inputs: Arrays, labels: Arrays, target: Target | None = None) -> Examples:
    """Inputs (N, ...), scaled as the net wants them, with labels of a target; classes if None."""
    x, y = given_inputs(inputs), plain(labels)
    if not y.ndim or len(x) != len(y) or not len(x):
        raise ConfigError(
            "there must be one label, or one row of labels, per input, but got inputs "
            f"{x.shape} and labels {y.shape}."
        )
    return Examples(x, (target or Classes()).prepared(y))


def given_task(
    train: Examples, val: Examples | None = None, *, target: Target | None = None
) -> Task:
    """A task of examples that are scaled as the net wants them, without test data."""
    target = target or Classes()
    nothing = train.subset(np.arange(0))
    val = nothing if val is None else val
    if val.inputs.shape[1:] != train.inputs.shape[1:]:
        raise ConfigError(
            "validation inputs must have the shape of training inputs, but got "
            f"{val.inputs.shape[1:]} and {train.inputs.shape[1:]}."
        )
    num_outputs = max(target.count_outputs(part.labels) for part in (train, val) if len(part))
    return Task(
        name="given",
        train=train,
        val=val,
        test=nothing,
        num_classes=num_outputs if isinstance(target, Classes) else 0,
        mean=(0.0,),
        std=(1.0,),
        target=target,
    )
