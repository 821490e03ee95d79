"""How compressible weights are: distinct values, entropy, sparsity.

Entropies are in bits a weight, over the shares of the distinct values. Published numbers differ
in whether zeros count (they do in PWFN and do not in WFN), so both are given.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Compressibility:
    """Of all weights and biases of the converted layers; norms do not count."""

    num_unique: int
    """Distinct values, zero included."""
    entropy: float
    entropy_nonzero: float
    """Over the weights that are not zero; 0 if there are none."""
    sparsity: float
    """Share of zeros."""


def measure(values_N: Tensor) -> Compressibility:
    """How compressible a vector of weights is; negative zero counts as zero."""
    values, counts = torch.unique(values_N.detach() + 0.0, return_counts=True)
    is_zero = values == 0
    return Compressibility(
        num_unique=len(values),
        entropy=entropy(counts),
        entropy_nonzero=entropy(counts[~is_zero]),
        sparsity=counts[is_zero].sum().item() / len(values_N),
    )


def entropy(counts_K: Tensor) -> float:
    """Shannon entropy in bits of the shares behind positive counts (K,)."""
    if len(counts_K) < 2:
        return 0.0
    shares = counts_K.double() / counts_K.sum()
    return float(-(shares * shares.log2()).sum())
