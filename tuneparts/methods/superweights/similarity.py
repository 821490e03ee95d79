"""How alike two layers pull at what they share, and which of them are alike enough to be grouped.

Gradients are summed over many batches first; there is one cosine per pair (Teterwak et al. 2024,
supplementary 1.1). While all layers of a cluster have the same coefficients, the cosine of the
gradients of their weights equals that of the gradients they send to the templates. Algorithm 1 of
the paper then unites what is more similar than a threshold.

Legend: N layers, O outputs, I inputs, A kernel area, K templates, U uses.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tuneparts.training.state import Stateful

Similarity = npt.NDArray[np.float64]
"""Cosines of all pairs; NaN where one of the two has no gradient."""
Labels = list[int]
"""Cluster of each layer, in the order of the layers."""


def overlap_cosines(gradients_OIA: Sequence[Tensor]) -> Similarity:
    """Compute cosines (N, N) of weight gradients over the top left block that both layers have.

    A layer without gradient is similar to nothing: its entries are NaN.

    Args:
        gradients_OIA: one (O, I, A) for each of N layers, of any O and I.

    Example:
        >>> import torch
        >>> one, other = torch.ones(2, 3, 1), -torch.ones(4, 2, 1)
        >>> overlap_cosines([one, other]).round(3).tolist()
        [[1.0, -1.0], [-1.0, 1.0]]
    """
    num = len(gradients_OIA)
    cosines = torch.full((num, num), float("nan"), dtype=torch.float64)
    for i, one in enumerate(gradients_OIA):
        for j, other in enumerate(gradients_OIA[: i + 1]):
            rows, columns = min(len(one), len(other)), min(one.shape[1], other.shape[1])
            a, b = (g[:rows, :columns].double().flatten() for g in (one, other))
            cosines[i, j] = cosines[j, i] = (a @ b / (a.norm() * b.norm())).cpu()
    return cosines.numpy()


def row_cosines(gradients_UK: Tensor) -> Similarity:
    """Compute cosines (U, U) of the gradients that the uses of a slot send to its coefficients."""
    unit_UK = gradients_UK.double() / gradients_UK.double().norm(dim=1, keepdim=True)
    cosines: Similarity = (unit_UK @ unit_UK.T).cpu().numpy()
    return cosines


def pairs(similarity_NN: Similarity) -> Similarity:
    """Take the entries of all unordered pairs."""
    return similarity_NN[np.tril_indices(len(similarity_NN), k=-1)]


def known_mean(parts: Sequence[Similarity]) -> float | None:
    """Average all entries that are numbers; None if there are none."""
    values = np.concatenate(parts)
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else None


def correlation(one: Sequence[Similarity], other: Sequence[Similarity]) -> float | None:
    """Correlate two estimates of the same entries; None where it is not defined."""
    a, b = np.concatenate(one), np.concatenate(other)
    is_known = np.isfinite(a) & np.isfinite(b)
    a, b = a[is_known], b[is_known]
    if len(a) < 3 or a.std() == 0 or b.std() == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


class GradientSums(Stateful, values=("_halves",)):
    """Running sums of the layers' gradients over batches; empty until the first batch.

    Batches go alternately to two sums: how far the similarities of the two halves agree tells
    whether they are signal or noise.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._halves: list[list[Tensor]] = []

    def add(self, gradients: Sequence[Tensor], *, half: int) -> None:
        """Add a batch to one half, 0 or 1."""
        if not self._halves:
            self._halves = [[torch.zeros_like(g) for g in gradients] for _ in range(2)]
        for total, gradient in zip(self._halves[half], gradients, strict=True):
            total.add_(gradient)

    def take(self) -> tuple[list[Tensor], list[list[Tensor]]]:
        """Return the sum over all batches and its two halves, and empty the sums."""
        halves, self._halves = self._halves, []
        return [a + b for a, b in zip(*halves, strict=True)], halves

    @property
    def state_device(self) -> torch.device:
        return self._device


def layer_similarities(gradients: Sequence[Tensor], bins: Labels) -> dict[int, Similarity]:
    """Compute the cosines of all pairs of layers of a bin: (N, N) for each bin.

    Args:
        gradients: the gradient of each layer's weight, in the order of the layers.
        bins: the bin of each layer.
    """
    return {
        label: overlap_cosines(
            [gradients[p].reshape(*gradients[p].shape[:2], -1) for p in positions]
        )
        for label, positions in members_of(bins).items()
    }


def metrics(
    similarities: Mapping[int, Similarity], halves: Sequence[Mapping[int, Similarity]]
) -> dict[str, float]:
    """Report how similar layers of a bin are on average, and whether two halves of the data agree.

    Metrics that are not defined are left out.
    """
    one, other = ([pairs(half[label]) for label in similarities] for half in halves)
    values = {
        "superweights/similarity": known_mean([pairs(matrix) for matrix in similarities.values()]),
        "superweights/split_half": correlation(one, other),
    }
    return {name: value for name, value in values.items() if value is not None}


def group(similarity_NN: npt.NDArray[np.float64], threshold: float) -> list[int]:
    """Unite items that are similar enough (Algorithm 1 of Teterwak et al. 2024).

    Args:
        similarity_NN: a pair counts with the larger of its two entries; NaN is not similar.
        threshold: pairs strictly above it are united; the rest stay on their own.

    Returns:
        Group number of each of N items, numbered in order of first appearance.

    Example:
        >>> import numpy as np
        >>> group(np.array([[1.0, 0.8, 0.1], [0.8, 1.0, 0.0], [0.1, 0.0, 1.0]]), 0.5)
        [0, 0, 1]
    """
    # The paper takes pairs from a queue, most similar first, and unites their groups while the
    # similarity exceeds the threshold. The order cannot change the outcome: groups are the
    # connected components of the graph of pairs above the threshold.
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
    """Relabel a grouping as 0, 1, ... in order of first appearance."""
    order = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return [order[label] for label in labels]


def members_of(labels: Labels) -> dict[int, list[int]]:
    """List the positions of the layers of each cluster, ascending."""
    found: dict[int, list[int]] = {}
    for position, label in enumerate(labels):
        found.setdefault(label, []).append(position)
    return dict(sorted(found.items()))
