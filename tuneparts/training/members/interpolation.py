"""The straight line between two members of one architecture (Fort et al. 2019).

A dip of accuracy along the line says that the members lie in different basins. There are no valid
running statistics in between, so norms use those of the batch.
"""

from collections.abc import Iterable
from copy import deepcopy

import torch
from torch import Tensor, nn


@torch.no_grad()
def accuracies_between(
    one: nn.Module,
    other: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    num_points: int,
) -> list[float]:
    """Accuracy at equally spaced points from `one` to `other`, both ends included.

    Args:
        one: a net.
        other: a net of the same architecture.
        batches: inputs and labels; small batches make poor statistics.
        num_points: at least two.
    """
    data = list(batches)
    between = deepcopy(one).train()
    ends = [dict(net.named_parameters()) for net in (one, other)]
    found = []
    for i in range(num_points):
        t = i / (num_points - 1)
        for name, parameter in between.named_parameters():
            # Exact at both ends, unlike a + t (b - a).
            parameter.copy_((1 - t) * ends[0][name] + t * ends[1][name])
        num_right = sum(int((between(x).argmax(dim=1) == y).sum()) for x, y in data)
        found.append(num_right / sum(len(y) for _, y in data))
    return found
