"""How examples are divided: stratified splits, and random chunks of the training data.

A stratified part has the classes in the proportions of the whole. The chunks D_1, ..., D_C are
those of Mlodozeniec et al. (2023): subnetwork k trains on D_1:k, and hyperparameters are judged on
D_k under subnetwork k - 1.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError


def _stratified_order(
    labels_N: npt.NDArray[np.int64], generator: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Draw an order, int64 (N,), with classes spread evenly: every stretch is stratified."""
    shuffled = generator.permutation(len(labels_N))
    by_class = shuffled[np.argsort(labels_N[shuffled], kind="stable")]
    _, starts, counts = np.unique(labels_N[by_class], return_index=True, return_counts=True)
    rank_in_class = np.arange(len(labels_N)) - np.repeat(starts, counts)
    place = (rank_in_class + 0.5) / np.repeat(counts, counts)
    return by_class[np.lexsort((generator.random(len(labels_N)), place))].astype(np.int64)


def _train_val(
    labels_N: npt.NDArray[np.int64],
    *,
    num_train: int | None,
    num_val: int,
    seed: int,
    held: Literal["num_val", "num_test"] = "num_val",
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Disjoint stratified indices, ascending; the second part does not depend on `num_train`."""
    available = len(labels_N) - num_val
    num_train = available if num_train is None else num_train
    if not 1 <= num_train <= available:
        raise ConfigError(
            f"`1 <= num_train <= {len(labels_N)} - {held}` must hold, but got num_train "
            f"{num_train} and {held} {num_val}."
        )
    stream = "split" if held == "num_val" else "held out"
    order = _stratified_order(labels_N, seeding.numpy_generator(seed, "data", stream))
    return np.sort(order[num_val : num_val + num_train]), np.sort(order[:num_val])


def _subset(
    labels_N: npt.NDArray[np.int64], *, num: int | None, seed: int, part: str = "test"
) -> npt.NDArray[np.int64]:
    """Choose stratified indices of a part of the test data, ascending; None keeps all."""
    if num is None:
        return np.arange(len(labels_N))
    if not 1 <= num <= len(labels_N):
        raise ConfigError(f"`1 <= num_{part} <= {len(labels_N)}` must hold, but got {num}.")
    order = _stratified_order(labels_N, seeding.numpy_generator(seed, "data", part))
    return np.sort(order[:num])


class Chunks:
    """One random permutation of the examples, cut into chunks that are read-only views of it."""

    def __init__(self, num_examples: int, proportions: Sequence[float], *, seed: int) -> None:
        self.proportions = tuple(float(p) for p in proportions)
        positive = [p > 0 for p in self.proportions]
        if not any(positive[:1]) or positive != sorted(positive, reverse=True):
            raise ConfigError(
                f"proportions {self.proportions}: must be positive, with zeros only at the end."
            )
        self.sizes = sizes(num_examples, self.proportions)
        """Examples per chunk."""
        for k, (size, share) in enumerate(zip(self.sizes, self.proportions, strict=True), start=1):
            if share > 0 and size == 0:
                raise ConfigError(
                    f"chunk {k} of {len(self.sizes)} is empty with {num_examples} examples in "
                    f"proportions {self.proportions}. Use fewer chunks or more examples."
                )
        order = seeding.numpy_generator(seed, "chunks").permutation(num_examples)
        self._order = order.astype(np.int64)
        self._order.flags.writeable = False
        self._ends = np.cumsum((0, *self.sizes))

    def __len__(self) -> int:
        return len(self.sizes)

    def chunk(self, k: int) -> npt.NDArray[np.int64]:
        """Indices of D_k, k = 1..C; shape (sizes[k - 1],)."""
        return self.cumulative(k)[self._ends[k - 1] :]

    def cumulative(self, k: int) -> npt.NDArray[np.int64]:
        """Indices of D_1:k, k = 1..C, chunk after chunk; shape (sum(sizes[:k]),)."""
        if not 1 <= k <= len(self):
            raise ConfigError(f"chunks are numbered 1 to {len(self)}, but got {k}.")
        return self._order[: self._ends[k]]


def sizes(total: int, proportions: Sequence[float]) -> tuple[int, ...]:
    """Split `total` exactly in these proportions, by the largest remainders (Hamilton 1792)."""
    if not all(math.isfinite(p) and p >= 0 for p in proportions) or not any(proportions):
        raise ConfigError(
            f"proportions {tuple(proportions)}: must be finite, non-negative and not all zero."
        )
    # Decimals as written, so that 0.1 is a tenth and ties do not hang on binary rounding.
    exact = [Fraction(repr(float(p))) for p in proportions]
    quotas = [total * p / sum(exact) for p in exact]
    shares = [math.floor(quota) for quota in quotas]
    by_remainder = sorted(range(len(quotas)), key=lambda i: (shares[i] - quotas[i], i))
    for i in by_remainder[: total - sum(shares)]:
        shares[i] += 1
    return tuple(shares)
