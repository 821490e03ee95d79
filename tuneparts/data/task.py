"""The data of a learner: train, validation and test arrays of one data set."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tuneparts.data.corrupted import CorruptedTest
from tuneparts.data.stored import StoredImages
from tuneparts.data.target import Classes, Target

Inputs = npt.NDArray[np.uint8] | npt.NDArray[np.float32] | npt.NDArray[np.int64] | StoredImages


@dataclass(frozen=True)
class Examples:
    """Arrays of inputs with their labels.

    `inputs` are uint8 images (N, C, H, W), whole numbers such as tokens as int64 (N, ...), or
    float32 (N, ...); `labels` are int64 or float32 (N, ...), as the target has them.
    The arrays may be read-only: they can live in memory shared between processes. Images that do
    not fit in memory are `StoredImages`, which index and measure like an array and pickle by path.
    """

    inputs: Inputs
    labels: npt.NDArray[Any]
    degrees: npt.NDArray[np.float64] | None = None
    """The angle (N,) that each image was turned by; None where nothing was turned."""

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: npt.NDArray[np.int64]) -> "Examples":
        """The examples at these indices, in this order."""
        degrees = None if self.degrees is None else self.degrees[indices]
        if isinstance(self.inputs, StoredImages):
            return Examples(self.inputs.select(indices), self.labels[indices], degrees)
        return Examples(self.inputs[indices], self.labels[indices], degrees)

    def joined(self, other: "Examples") -> "Examples":
        """These examples, then those of `other`; nothing is copied when `other` is empty."""
        if not len(other):
            return self
        labels = np.concatenate([self.labels, other.labels])
        angles = [part.degrees for part in (self, other) if part.degrees is not None]
        degrees = np.concatenate(angles) if len(angles) == 2 else None
        if isinstance(self.inputs, StoredImages) and isinstance(other.inputs, StoredImages):
            return Examples(self.inputs.joined(other.inputs), labels, degrees)
        return Examples(np.concatenate([self.inputs, other.inputs]), labels, degrees)


@dataclass(frozen=True)
class Task:
    """One data set, split, with what a net is to predict from it.

    Example:
        >>> images = np.zeros((6, 1, 8, 8), np.uint8)
        >>> some = Examples(images, np.arange(6) % 2)
        >>> task = Task("mine", some, some, some, num_classes=2, mean=(0.5,), std=(0.5,))
        >>> task.in_shape
        (1, 8, 8)
    """

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
        """Outputs that a net for this task has."""
        return self.num_classes or self.target.count_outputs(self.train.labels)

    # A target of one's own is made anew where it is first asked for: a worker unpickles its task
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
