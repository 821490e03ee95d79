"""Arrays and tensors that a caller holds, as the data of a learner."""

from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from tuneparts.data.task import Examples, Task
from tuneparts.errors import ConfigError

Arrays = Tensor | npt.NDArray[Any]


def float_inputs(values: Arrays) -> npt.NDArray[np.float32]:
    """Inputs as a float32 array, as nets are called with them."""
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    return np.asarray(array, dtype=np.float32)


def given_examples(inputs: Arrays, labels: Arrays) -> Examples:
    """Inputs (N, ...) with their labels (N,); refuses what cannot be classes.

    Example:
        >>> import torch
        >>> len(given_examples(torch.zeros(3, 2), torch.tensor([0, 1, 0])))
        3
    """
    x = float_inputs(inputs)
    y = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    is_paired = x.ndim > 1 and y.ndim == 1 and len(x) == len(y) > 0
    if not is_paired or y.dtype.kind not in "iu" or y.min() < 0:
        raise ConfigError(
            "there must be one label, a whole number from 0 on, per input, but got inputs "
            f"{x.shape} and labels {y.shape} of type {y.dtype}."
        )
    return Examples(x, y.astype(np.int64))


def given_task(train: Examples, val: Examples | None = None) -> Task:
    """A task of examples that are scaled as the net wants them, without test data."""
    nothing = train.subset(np.arange(0))
    parts = [train] if val is None else [train, val]
    if val is not None and val.inputs.shape[1:] != train.inputs.shape[1:]:
        raise ConfigError(
            "validation inputs must have the shape of training inputs, but got "
            f"{val.inputs.shape[1:]} and {train.inputs.shape[1:]}."
        )
    return Task(
        name="given",
        train=train,
        val=nothing if val is None else val,
        test=nothing,
        num_classes=1 + max(int(part.labels.max()) for part in parts),
        mean=(0.0,),
        std=(1.0,),
    )
