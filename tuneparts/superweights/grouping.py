"""Algorithm 1 of Teterwak et al. (2024): merge what is similar enough.

The algorithm takes pairs from a queue, most similar first, and unites their groups while the
similarity exceeds a threshold. The order cannot change the outcome: groups are the connected
components of the graph of pairs above the threshold.
"""

import numpy as np
import numpy.typing as npt


def group(similarity_NN: npt.NDArray[np.float64], threshold: float) -> list[int]:
    """Group number of each of N items, numbered in order of first appearance.

    Args:
        similarity_NN: read in both directions; a pair that is not a number is not similar.
        threshold: pairs strictly above it are united; the rest stay on their own.
    """
    parent = list(range(len(similarity_NN)))

    def root(item: int) -> int:
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    above_NN = similarity_NN > threshold  # False for NaN
    for one, other in np.argwhere(above_NN | above_NN.T).tolist():
        parent[root(one)] = root(other)
    return numbered([root(item) for item in range(len(parent))])


def numbered(labels: list[int]) -> list[int]:
    """The same grouping with labels 0, 1, ... in order of first appearance."""
    order = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return [order[label] for label in labels]
