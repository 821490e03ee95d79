"""Which weights belong to which partition (Mlodozeniec et al. 2023, appendix C).

A map gives every entry of a weight tensor its partition, 1 to C, as one byte. The random scheme
deals out each tensor by itself; the node scheme labels hidden units, and a weight belongs to the
later one of the two units that it joins.

Shapes: n entries of a tensor, O output units, I input units.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from tuneparts.data.proportions import sizes
from tuneparts.errors import ConfigError

MAX_PARTITIONS = 255
"""A byte counts that far, and 0 stays free for subnetwork 0, which owns nothing."""


def checked_proportions(proportions: Sequence[float]) -> tuple[float, ...]:
    """Proportions of the weights per partition; refuses too many, and an empty first one."""
    given = tuple(float(p) for p in proportions)
    if not 1 <= len(given) <= MAX_PARTITIONS:
        raise ConfigError(
            f"there are 1 to {MAX_PARTITIONS} partitions, so that a byte names each, but got "
            f"{len(given)}. Use fewer proportions."
        )
    sizes(1, given)  # refuses what is negative, infinite or all zero
    if given[0] <= 0:
        raise ConfigError(
            f"partition 1 makes every subnetwork's outputs and must own weights, but got "
            f"proportions {given}. Start with a positive number."
        )
    return given


def random_labels(
    num_entries: int, proportions: Sequence[float], *, generator: torch.Generator
) -> Tensor:
    """Partition of each entry of one tensor: uint8 (n,), in exact shares and random order.

    Shares are by largest remainder, so each differs from its quota by less than one. A tensor with
    fewer entries than partitions goes to partition 1 as a whole: every subnetwork needs it.

    Args:
        num_entries: n.
        proportions: one per partition.
        generator: on the CPU; draws the order.
    """
    num_partitions = len(proportions)
    if num_entries < num_partitions:
        return torch.ones(num_entries, dtype=torch.uint8)
    counts = torch.tensor(sizes(num_entries, proportions))
    labels_n = torch.arange(1, num_partitions + 1, dtype=torch.uint8).repeat_interleave(counts)
    return labels_n[torch.randperm(num_entries, generator=generator)]


def nested_labels(in_labels_I: Tensor, out_labels_O: Tensor) -> Tensor:
    """Partition of each weight between units: uint8 (O, I), the later of its two units.

    With the output's label alone, a weight from a later input to an earlier output would sit in
    a subnetwork that masks its input, and never get a gradient.
    """
    return torch.maximum(out_labels_O[:, None], in_labels_I[None, :])


def order_of(labels_n: Tensor, num_partitions: int) -> tuple[Tensor, tuple[int, ...]]:
    """Entries sorted by partition, for gathering and scattering.

    Returns:
        int32 (n,) positions, ascending within each partition, and C + 1 offsets into them:
        partition k owns `order[offsets[k - 1] : offsets[k]]`, and later ones all from
        `offsets[k]` on.
    """
    order_n = torch.argsort(labels_n, stable=True).to(torch.int32)
    counts = torch.bincount(labels_n.long(), minlength=num_partitions + 1)
    return order_n, tuple(counts.cumsum(0).tolist())
