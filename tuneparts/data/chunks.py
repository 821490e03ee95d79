"""Random disjoint chunks of the training data and their cumulative unions.

The chunks D_1, ..., D_C of Mlodozeniec et al. (2023): subnetwork k trains on D_1:k, and hypers are
judged on D_k under subnetwork k - 1.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError
from tuneparts.data.proportions import sizes


class Chunks:
    """One random permutation of the examples, cut into chunks.

    The index arrays are read-only views into that permutation, so C chunks and their C unions
    take the memory of one.

    Example:
        >>> chunks = Chunks(10, (0.8, 0.2), seed=0)
        >>> len(chunks.chunk(2)), len(chunks.cumulative(2))
        (2, 10)
    """

    def __init__(self, num_examples: int, proportions: Sequence[float], *, seed: int) -> None:
        self.proportions = _checked(proportions)
        self.sizes = sizes(num_examples, self.proportions)
        """Examples per chunk."""
        for k, (size, share) in enumerate(zip(self.sizes, self.proportions, strict=True), start=1):
            if share > 0 and size == 0:
                raise ConfigError(
                    f"every chunk with a positive proportion must have an example, but chunk {k} "
                    f"of {len(self.sizes)} is empty with {num_examples} examples in proportions "
                    f"{self.proportions}. Use fewer chunks or more examples."
                )
        order = seeding.numpy_generator(seed, "chunks").permutation(num_examples)
        self._order = order.astype(np.int64)
        self._order.flags.writeable = False
        self._ends = np.cumsum((0, *self.sizes))

    def __len__(self) -> int:
        return len(self.sizes)

    def chunk(self, k: int) -> npt.NDArray[np.int64]:
        """Indices of D_k, k = 1..C; shape (sizes[k - 1],)."""
        self._check(k)
        return self._order[self._ends[k - 1] : self._ends[k]]

    def cumulative(self, k: int) -> npt.NDArray[np.int64]:
        """Indices of D_1:k, k = 1..C, chunk after chunk; shape (sum(sizes[:k]),)."""
        self._check(k)
        return self._order[: self._ends[k]]

    def _check(self, k: int) -> None:
        if not 1 <= k <= len(self):
            raise ConfigError(f"chunks are numbered 1 to {len(self)}, but got {k}.")


def _checked(proportions: Sequence[float]) -> tuple[float, ...]:
    given = tuple(float(p) for p in proportions)
    positive = [p > 0 for p in given]
    if not given or not positive[0] or positive != sorted(positive, reverse=True):
        raise ConfigError(
            "proportions of chunks must start with a positive number and may have zeros only at "
            f"the end, but got {given}."
        )
    return given
