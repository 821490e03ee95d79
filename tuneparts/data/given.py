"""Arrays and tensors that a caller holds, as the data of a learner."""

from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from tuneparts.core.errors import ConfigError
from tuneparts.data.arrays import checked_inputs, plain
from tuneparts.data.target import Classes, Target
from tuneparts.data.task import Examples, Task

Arrays = Tensor | npt.NDArray[Any]


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
