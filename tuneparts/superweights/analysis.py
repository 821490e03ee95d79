"""The gradients of all layers, summed over many batches, and what is read from them.

Batches go alternately to two sums: how far the similarities of the two halves agree says whether
they are signal.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tuneparts.superweights import similarity
from tuneparts.superweights.clusters import Labels, members_of
from tuneparts.superweights.similarity import Similarity


class GradientSums:
    """Two running sums of the layers' gradients; empty until the first batch."""

    def __init__(self) -> None:
        self._halves: list[list[Tensor]] = []

    def add(self, gradients: Sequence[Tensor], *, half: int) -> None:
        """Add a batch to one half, 0 or 1."""
        if not self._halves:
            self._halves = [[torch.zeros_like(g) for g in gradients] for _ in range(2)]
        for total, gradient in zip(self._halves[half], gradients, strict=True):
            total.add_(gradient)

    def take(self) -> tuple[list[Tensor], list[list[Tensor]]]:
        """The sum over all batches and its two halves; empties the sums."""
        halves, self._halves = self._halves, []
        return [a + b for a, b in zip(*halves, strict=True)], halves

    def state(self) -> list[list[Tensor]]:
        """A copy of both halves."""
        return [[total.clone() for total in half] for half in self._halves]

    def load(self, state: Sequence[Sequence[Tensor]], device: torch.device) -> None:
        """Continue from a state."""
        self._halves = [[total.clone().to(device) for total in half] for half in state]


def layer_similarities(gradients: Sequence[Tensor], bins: Labels) -> dict[int, Similarity]:
    """Cosines of all pairs of layers of a bin, (N, N) for each bin.

    Args:
        gradients: of each layer's weight, in the order of the layers.
        bins: the bin of each layer.
    """
    return {
        label: similarity.overlap_cosines(
            [gradients[p].reshape(*gradients[p].shape[:2], -1) for p in positions]
        )
        for label, positions in members_of(bins).items()
    }


def evidence(
    similarities: Mapping[int, Similarity], halves: Sequence[Mapping[int, Similarity]]
) -> dict[str, float]:
    """How similar layers of a bin are on average, and whether two halves of the data agree.

    What is not defined is left out.
    """
    one, other = ([similarity.pairs(half[label]) for label in similarities] for half in halves)
    values = {
        "superweights/similarity": similarity.known_mean(
            [similarity.pairs(matrix) for matrix in similarities.values()]
        ),
        "superweights/split_half": similarity.correlation(one, other),
    }
    return {name: value for name, value in values.items() if value is not None}
