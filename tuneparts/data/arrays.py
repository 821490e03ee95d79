"""Arrays that somebody brought along, as inputs and labels that learners take.

Inputs come in three kinds, told apart by their type: images as uint8 (N, C, H, W), whole numbers
such as tokens as int64, and everything else as float32.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from tuneparts.core.errors import ConfigError

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

    Args:
        values: an array, a tensor or a nested list.
        keeps_bytes: whether uint8 images stay so, to be scaled to [0, 1] batch by batch; bytes
            become float32 if not.

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
