"""Exactly so many of the smallest, ties by index."""

import torch
from torch import Tensor


def smallest(values_N: Tensor, num: int) -> Tensor:
    """A mask (N,) of exactly `num` entries: the smallest, and of equal ones the first."""
    if num <= 0:
        return torch.zeros_like(values_N, dtype=torch.bool)
    limit = values_N.kthvalue(num).values
    chosen_N = values_N < limit
    ties = (values_N == limit).nonzero().squeeze(1)
    chosen_N[ties[: num - int(chosen_N.sum())]] = True
    return chosen_N
