"""The data of a learner: train, validation and test arrays of one data set.

Images that do not fit in memory stay on disk: rows of a uint8 array file, which is read through a
memory map whose pages all processes of a machine share, or image files that are decoded when read.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tuneparts.core.errors import DataError
from tuneparts.data._variants import CorruptedTest
from tuneparts.data.target import Classes, Target

if TYPE_CHECKING:
    from tuneparts.data._images import EncodedImages
    from tuneparts.data.config import Data


class StoredImages:
    """Rows of a uint8 array file (N, C, H, W), or of image files that are decoded when read."""

    dtype = np.dtype(np.uint8)

    def __init__(
        self, source: "Path | EncodedImages", rows: npt.NDArray[np.int64] | None = None
    ) -> None:
        self._source = source
        self.path = source if isinstance(source, Path) else source.path
        """Its name is a digest of the images."""
        self._images = _mapped(source) if isinstance(source, Path) else source
        self.rows = np.arange(self._images.shape[0]) if rows is None else rows
        """Which rows of the source these images are; int64 (N,)."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self._images.shape[1:])

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, indices: npt.NDArray[np.int64] | slice) -> npt.NDArray[np.uint8]:
        return self._images[self.rows[indices]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return self[:].astype(dtype or np.uint8, copy=False)

    def select(self, indices: npt.NDArray[np.int64]) -> "StoredImages":
        return StoredImages(self._source, self.rows[indices])

    def joined(self, other: "StoredImages") -> "StoredImages":
        """These images, then those of `other`, of the same file; still on disk."""
        if other.path != self.path:
            raise DataError(f"{self.path} and {other.path}: images of one file are joined only.")
        return StoredImages(self._source, np.concatenate([self.rows, other.rows]))

    def __reduce__(self) -> tuple[type["StoredImages"], tuple[Any, ...]]:
        return StoredImages, (self._source, self.rows)


def _mapped(path: Path) -> npt.NDArray[np.uint8]:
    try:
        # Not np.load, which also opens archives: a cache is one array.
        images: npt.NDArray[np.uint8] = np.lib.format.open_memmap(path, mode="r")
        if images.dtype != np.uint8 or images.ndim != 4:
            raise ValueError(f"{images.dtype} {images.shape} is not uint8 (N, C, H, W)")
    except Exception as error:  # numpy raises many types for hostile headers
        raise DataError(
            f"{path} cannot be mapped as an array of images: {error!r:.200}. Delete it; it is "
            "decoded again at the next load."
        ) from error
    return images.view(np.ndarray)


Inputs = npt.NDArray[np.uint8] | npt.NDArray[np.float32] | npt.NDArray[np.int64] | StoredImages


@dataclass(frozen=True)
class Examples:
    """Arrays of inputs with their labels; they may be read-only, in memory that processes share.

    `inputs` are uint8 images (N, C, H, W), whole numbers such as tokens as int64 (N, ...), or
    float32 (N, ...); `labels` are int64 or float32 (N, ...), as the target has them.
    """

    inputs: Inputs
    labels: npt.NDArray[Any]
    degrees: npt.NDArray[np.float64] | None = None
    """The angle (N,) that each image was turned by; None where nothing was turned."""

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: npt.NDArray[np.int64]) -> "Examples":
        degrees = None if self.degrees is None else self.degrees[indices]
        if isinstance(self.inputs, StoredImages):
            return Examples(self.inputs.select(indices), self.labels[indices], degrees)
        return Examples(self.inputs[indices], self.labels[indices], degrees)

    def joined(self, other: "Examples") -> "Examples":
        """These examples, then those of `other`; nothing is copied when `other` is empty."""
        if not len(other):
            return self
        inputs: Inputs
        if isinstance(self.inputs, StoredImages) and isinstance(other.inputs, StoredImages):
            inputs = self.inputs.joined(other.inputs)
        else:
            inputs = np.concatenate([self.inputs, other.inputs])
        angles = [part.degrees for part in (self, other) if part.degrees is not None]
        degrees = np.concatenate(angles) if len(angles) == 2 else None
        return Examples(inputs, np.concatenate([self.labels, other.labels]), degrees)


@dataclass(frozen=True)
class Task:
    """One data set, split, with what a net is to predict from it."""

    name: str
    train: Examples
    val: Examples
    test: Examples
    num_classes: int
    """Of a target of classes; 0 for any other."""
    mean: tuple[float, ...]
    """Of each channel, for inputs scaled to [0, 1]; `(0.0,)` for vectors."""
    std: tuple[float, ...]
    target: Target = field(default_factory=Classes)
    """The loss that learners minimise, and the scores that they report."""
    corrupted: CorruptedTest | None = None
    """Published corruptions of the test images, scored at the end; None where there are none."""

    @property
    def in_shape(self) -> tuple[int, ...]:
        """Shape of one input: (C, H, W) or (D,)."""
        return tuple(self.train.inputs.shape[1:])

    @property
    def has_pixels(self) -> bool:
        """Whether inputs are stored as bytes, and scaled to [0, 1] before anything else."""
        return self.train.inputs.dtype == np.uint8

    @property
    def has_tokens(self) -> bool:
        """Whether inputs are whole numbers, which are neither scaled nor augmented."""
        return self.train.inputs.dtype == np.int64

    @property
    def num_outputs(self) -> int:
        return self.num_classes or self.target.count_outputs(self.train.labels)

    # Your own target is made anew where it is first asked for: a worker unpickles its task
    # before it can import the code of a search.

    def __getstate__(self) -> dict[str, Any]:
        state = dict(vars(self))
        if "target" in state:
            state["_target"] = state.pop("target").model_dump()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def __getattr__(self, name: str) -> Any:
        if name != "target" or "_target" not in vars(self):
            raise AttributeError(name)
        vars(self)["target"] = Target.made_from(vars(self).pop("_target"))
        return vars(self)["target"]


_NOTHING = Examples(np.zeros((0, 0), np.float32), np.zeros(0, np.int64))
NO_DATA = Task("none", _NOTHING, _NOTHING, _NOTHING, num_classes=0, mean=(0.0,), std=(1.0,))
"""The task of a search whose arms learn from no data."""


def digest(task: Task) -> str:
    """Twelve digits that change with any example (or its file), split, scaling or target."""
    facts = (task.num_outputs, task.mean, task.std, task.target.model_dump_json())
    return _digest(repr(facts), task.train, task.val, task.test)


def part_digest(part: Examples) -> str:
    """The same of one part alone, whatever its inputs are scaled by."""
    return _digest("", part)


def _digest(facts: str, *parts: Examples) -> str:
    found = hashlib.sha256(facts.encode())
    for part in parts:
        inputs: npt.NDArray[Any] | StoredImages = part.inputs
        if isinstance(inputs, StoredImages):
            found.update(inputs.path.name.encode())
            inputs = inputs.rows
        for array in (part.labels, inputs):
            found.update(f"{array.dtype.str} {array.shape}".encode())
            found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()[:12]


def _channel_statistics(inputs: Inputs) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Of channels, with pixels from 0 to 1; the deviation is 1 where nothing varies."""
    if inputs.dtype == np.int64:
        raise DataError("`standardise` scales images and real numbers, not whole numbers.")
    scale = 255.0 if inputs.dtype == np.uint8 else 1.0

    def blocks() -> Iterator[npt.NDArray[np.float64]]:
        for start in range(0, len(inputs), 4096):
            block = np.asarray(inputs[start : start + 4096], dtype=np.float64) / scale
            yield np.moveaxis(block, 1, -1).reshape(-1, block.shape[1])

    count = sum(len(rows) for rows in blocks())
    mean_C = np.sum([rows.sum(axis=0) for rows in blocks()], axis=0) / count
    squares = [((rows - mean_C) ** 2).sum(axis=0) for rows in blocks()]
    std_C = np.sqrt(np.sum(squares, axis=0) / count)
    return tuple(mean_C.tolist()), tuple(np.where(std_C > 0, std_C, 1.0).tolist())


@dataclass(frozen=True)
class _Parts:
    """The official parts of a set, before any split."""

    train: Examples
    test: Examples | None
    """None where it is to be split off the training part."""
    num_classes: int
    """0 where labels are no classes."""
    val: Examples | None = None
    """None where it is to be split off the training part, as in all of our own sets."""


@dataclass(frozen=True)
class _DataSource:
    """A data set that was found in one place; its sizes are known without decoding anything."""

    where: str
    num_train: int | None
    num_test: int | None
    shape: tuple[int, ...] | None
    """(C, H, W) or (D,); None when it depends on the image size asked for."""
    num_classes: int | None
    read: "Callable[[Data, int | None], _Parts]"
    """Takes a seed of the search that draws its own data; None for the fixed draw."""
