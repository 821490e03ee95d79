"""k-means of numbers on a line: the codebook that ignores what hardware likes (Lloyd 1982).

Shapes: N numbers, K centres, ascending.
"""

import torch
from torch import Tensor

from tuneparts.errors import ConfigError


def kmeans(values_N: Tensor, num_centres: int, *, max_steps: int = 300) -> Tensor:
    """At most `num_centres` centres at a fixed point of Lloyd's algorithm: float64 (K,).

    Starts at equal distances from the least to the greatest number, which serves large weights
    best (Han et al. 2016) and needs no random numbers; centres without members are dropped. On a
    line the clusters are intervals of the sorted numbers: a step costs K log N.
    """
    if num_centres < 1 or not values_N.numel():
        raise ConfigError(
            "`num_centres >= 1` and at least one number must be given, but got "
            f"{num_centres} and {values_N.numel()} numbers."
        )
    sorted_N = values_N.detach().double().sort().values
    sums = torch.cat([sorted_N.new_zeros(1), sorted_N.cumsum(0)])
    low, high = sorted_N[0].item(), sorted_N[-1].item()
    centres_K = torch.linspace(low, high, num_centres, dtype=sums.dtype, device=sums.device)
    for _ in range(max_steps):
        middles = (centres_K[1:] + centres_K[:-1]) / 2
        inner = torch.searchsorted(sorted_N, middles, right=True)
        ends = torch.cat([inner.new_zeros(1), inner, inner.new_full((1,), len(sorted_N))])
        counts_K = ends.diff()
        is_used = counts_K > 0
        moved_K: Tensor = (sums[ends[1:]] - sums[ends[:-1]])[is_used] / counts_K[is_used]
        if torch.equal(moved_K, centres_K):
            break
        centres_K = moved_K
    return centres_K
