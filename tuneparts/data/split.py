"""Stratified splits and subsets: every part has the classes in the proportions of the whole."""

import numpy as np
import numpy.typing as npt

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError


def stratified_order(
    labels_N: npt.NDArray[np.int64], generator: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Draw a random order of which every stretch is stratified; int64 (N,).

    Each class is shuffled and spread evenly over the order, so that prefixes of different length
    are nested. Classes of equal size differ by at most one in a prefix and by two in any stretch.
    """
    shuffled = generator.permutation(len(labels_N))
    by_class = shuffled[np.argsort(labels_N[shuffled], kind="stable")]
    _, starts, counts = np.unique(labels_N[by_class], return_index=True, return_counts=True)
    rank_in_class = np.arange(len(labels_N)) - np.repeat(starts, counts)
    place = (rank_in_class + 0.5) / np.repeat(counts, counts)
    return by_class[np.lexsort((generator.random(len(labels_N)), place))].astype(np.int64)


def train_val(
    labels_N: npt.NDArray[np.int64], *, num_train: int | None, num_val: int, seed: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Choose disjoint stratified train and validation indices, ascending.

    The validation part does not depend on `num_train`, and a smaller training part lies within a
    larger one.

    Args:
        labels_N: labels of the official training part.
        num_train: None takes all that validation leaves.
        num_val: zero for no validation part.
        seed: another seed gives another split.
    """
    available = len(labels_N) - num_val
    if num_train is None:
        num_train = available
    if num_train < 1 or num_train > available:
        raise ConfigError(
            f"`1 <= num_train <= {len(labels_N)} - num_val` must hold, "
            f"but got num_train {num_train} and num_val {num_val}."
        )
    order = stratified_order(labels_N, seeding.numpy_generator(seed, "data", "split"))
    return np.sort(order[num_val : num_val + num_train]), np.sort(order[:num_val])


def subset(
    labels_N: npt.NDArray[np.int64], *, num: int | None, seed: int, part: str = "test"
) -> npt.NDArray[np.int64]:
    """Choose stratified indices of a part of the test data, ascending; None keeps all."""
    if num is None:
        return np.arange(len(labels_N))
    if not 1 <= num <= len(labels_N):
        raise ConfigError(f"`1 <= num_{part} <= {len(labels_N)}` must hold, but got {num}.")
    order = stratified_order(labels_N, seeding.numpy_generator(seed, "data", part))
    return np.sort(order[:num])


def held_out(
    labels_N: npt.NDArray[np.int64], *, num: int | None, seed: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Split test data off a set that has none: the indices that stay, and those held out.

    Both are ascending. A smaller test part lies within a larger one.

    Args:
        labels_N: labels of the whole set.
        num: test examples; None takes a fifth.
        seed: another seed gives another split.
    """
    num = max(1, round(len(labels_N) / 5)) if num is None else num
    if not 1 <= num < len(labels_N):
        raise ConfigError(f"`1 <= num_test < {len(labels_N)}` must hold, but got {num}.")
    order = stratified_order(labels_N, seeding.numpy_generator(seed, "data", "held out"))
    return np.sort(order[num:]), np.sort(order[:num])
