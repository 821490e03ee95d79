"""How alike two layers pull at what they share, and which of them are alike enough to be grouped.

Gradients are summed over many batches first; there is one cosine per pair (Teterwak et al. 2024,
supplementary 1.1). While all layers of a cluster have the same coefficients, the cosine of the
gradients of their weights equals that of the gradients they send to the templates. Algorithm 1 of
the paper then unites what is more similar than a threshold.

Legend: N layers, O outputs, I inputs, A kernel area, K templates, U uses.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from tuneparts.training.state import Stateful

Similarity = npt.NDArray[np.float64]
"""Cosines of all pairs; NaN where one of the two has no gradient."""
Labels = list[int]
"""Cluster of each layer, in the order of the layers."""


def overlap_cosines(gradients_OIA: Sequence[Tensor]) -> Similarity:
    """Compute cosines (N, N) of weight gradients over the top left block that both layers have."""
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


def layer_similarities(gradients: Sequence[Tensor], bins: Labels) -> dict[int, Similarity]:
    return {
        label: overlap_cosines([gradients[p] for p in positions])
        for label, positions in members_of(bins).items()
    }


class GradientSums(Stateful, values=("_halves",)):
    """Sums of gradients over batches, in two halves whose agreement tells signal from noise."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._halves: list[list[Tensor]] = []

    def add(self, gradients: Sequence[Tensor], *, half: int) -> None:
        if not self._halves:
            self._halves = [[torch.zeros_like(g) for g in gradients] for _ in range(2)]
        for total, gradient in zip(self._halves[half], gradients, strict=True):
            total.add_(gradient)

    def take(self) -> tuple[list[Tensor], list[list[Tensor]]]:
        halves, self._halves = self._halves, []
        return [a + b for a, b in zip(*halves, strict=True)], halves

    @property
    def state_device(self) -> torch.device:
        return self._device


def metrics(
    similarities: Mapping[int, Similarity], halves: Sequence[Mapping[int, Similarity]]
) -> dict[str, float]:
    """How similar layers of a bin are on average, and how far two halves of the data agree."""

    def pairs(of: Mapping[int, Similarity]) -> Similarity:
        return np.concatenate([m[np.tril_indices(len(m), k=-1)] for m in of.values()])

    whole, one, other = pairs(similarities), *map(pairs, halves)
    found, known = {}, whole[np.isfinite(whole)]
    if len(known):
        found["superweights/similarity"] = float(known.mean())
    is_known = np.isfinite(one) & np.isfinite(other)
    one, other = one[is_known], other[is_known]
    if len(one) > 2 and one.std() > 0 and other.std() > 0:
        found["superweights/split_half"] = float(np.corrcoef(one, other)[0, 1])
    return found


def group(similarity_NN: Similarity, threshold: float) -> Labels:
    """Unite pairs strictly above a threshold (Algorithm 1 of Teterwak et al. 2024); NaN is not."""
    # The paper unites pairs from a queue, most similar first; the order cannot change components.
    _, labels_N = connected_components(similarity_NN > threshold, directed=False)
    return numbered(labels_N.tolist())


def relabelled(similarity_NN: Similarity, threshold: float) -> Labels:
    """Group items as the authors' released code does, which is not Algorithm 1.

    Pairs strictly above the threshold are walked from the most similar one down, of equal ones the
    last in order first; only one item of a pair moves to the label of the other, and those that had
    joined it before stay behind.
    """
    rows, columns = np.triu_indices(len(similarity_NN), k=1)
    found = zip(similarity_NN[rows, columns].tolist(), rows.tolist(), columns.tolist(), strict=True)
    labels = list(range(len(similarity_NN)))
    for _, earlier, later in sorted((one for one in found if one[0] > threshold), reverse=True):
        labels[later] = labels[earlier]
    return numbered(labels)


def split(
    labels: Labels,
    similarities: Mapping[int, Similarity],
    threshold: float,
    *,
    following: Mapping[int, int] | None = None,
    grouping: Callable[[Similarity, float], Labels] = group,
) -> Labels:
    """Split each cluster by the similarities (N, N) of its members, in order.

    Those that follow another member, by position, join its part instead.
    """
    new, count, leaders = [0] * len(labels), 0, following or {}
    for label, positions in members_of(labels).items():
        free = [i for i, p in enumerate(positions) if p not in leaders]
        parts = grouping(similarities[label][np.ix_(free, free)], threshold)
        own = {positions[i]: count + part for i, part in zip(free, parts, strict=True)}
        for position in positions:
            leader = position
            while leader in leaders:
                leader = leaders[leader]
            new[position] = own[leader]
        count += max(parts) + 1
    return new


def numbered(labels: Labels) -> Labels:
    """Relabel a grouping as 0, 1, ... in order of first appearance."""
    order = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return [order[label] for label in labels]


def members_of(labels: Labels) -> dict[int, list[int]]:
    """List the positions of the members of each cluster, ascending."""
    found: dict[int, list[int]] = {label: [] for label in sorted(set(labels))}
    for position, label in enumerate(labels):
        found[label].append(position)
    return found
