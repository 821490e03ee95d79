"""A digest of the examples themselves: what a run learnt from, whatever made it."""

import hashlib

import numpy as np

from tuneparts.data.stored import StoredImages
from tuneparts.data.task import Examples, Task


def digest(task: Task) -> str:
    """Twelve hexadecimal digits that change with any example, split, scaling or target.

    Images that stay on disk count by the name of their file, which is a digest of what it was
    decoded from, and by their rows in it.

    Example:
        >>> some = Examples(np.zeros((2, 3), np.float32), np.array([0, 1]))
        >>> len(digest(Task("t", some, some, some, num_classes=2, mean=(0.0,), std=(1.0,))))
        12
    """
    found = hashlib.sha256()
    facts = (task.num_outputs, task.mean, task.std, task.target.model_dump_json())
    found.update(repr(facts).encode())
    for part in (task.train, task.val, task.test):
        _add(part, found)
    return found.hexdigest()[:12]


def part_digest(part: Examples) -> str:
    """The same of one part alone, whatever its inputs are scaled by."""
    found = hashlib.sha256()
    _add(part, found)
    return found.hexdigest()[:12]


def _add(part: Examples, found: "hashlib._Hash") -> None:
    inputs = part.inputs
    arrays = [part.labels]
    if isinstance(inputs, StoredImages):
        found.update(inputs.path.name.encode())
        arrays.append(inputs.rows)
    else:
        arrays.append(inputs)
    for array in arrays:
        found.update(f"{array.dtype.str} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).data)
