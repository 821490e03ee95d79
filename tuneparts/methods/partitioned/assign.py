"""Which weights belong to which partition (Mlodozeniec et al. 2023, appendices C and I.2).

Weights are dealt out entry by entry: a map gives every entry of a weight tensor its partition, 1 to
C, as one byte. The random scheme deals out each tensor by itself, whatever layer it is of; the
node scheme labels hidden units, and a weight belongs to the later one of the two units that it
joins. The affine parameters of norms and the scalars of FixUp have too few entries and too much
effect for that: every partition has a scale and a shift of its own, and subnetwork k applies the
product and the sum of the first k.

Shapes: n entries of a tensor, O output units, I input units.
"""

from collections.abc import Mapping, Sequence
from enum import Enum

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm

from tuneparts.core.errors import ConfigError
from tuneparts.data.chunks import sizes
from tuneparts.models.layers import Bias, ScalarMultiplier

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


def check_division(proportions: Sequence[float], owned: Sequence[float]) -> None:
    """Refuse proportions of chunks and of partitions that are invalid or not equally many."""
    checked_proportions(proportions)
    checked_proportions(owned)
    if len(owned) != len(proportions):
        raise ValueError(
            f"chunks and partitions are equally many, but `proportions` has {len(proportions)} "
            f"entries and `parameter_proportions` {len(owned)}."
        )
    for k, (data, weights) in enumerate(zip(proportions, owned, strict=True), start=1):
        if weights > 0 and not data > 0:
            raise ValueError(
                f"a partition with weights needs a chunk to train them, but partition {k} has "
                f"{weights:g} of the weights and chunk {k} no data: they would stay as they were "
                f"drawn, and act in every prediction. Give chunk {k} data, or partition {k} none."
            )


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


class Role(Enum):
    """How a parameter is shared among partitions."""

    ENTRIES = "each entry belongs to one partition"
    PRODUCT = "each partition has a factor"
    SUM = "each partition has a summand"
    HELD = "belongs to no partition"


NORMS = (_BatchNorm, _InstanceNorm, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
_ENTRIES = (nn.Linear, _ConvNd)
_ROLES: dict[tuple[type[nn.Module], ...], Mapping[str, Role]] = {
    NORMS: {"weight": Role.PRODUCT, "bias": Role.SUM},
    (ScalarMultiplier,): {"scale": Role.PRODUCT},
    (Bias,): {"bias": Role.SUM},
}


def roles_of(net: nn.Module, *, num_held: int = 0) -> dict[str, Role]:
    """The role of every parameter by name; refuses a net without weights to deal out.

    Parameters that do not require gradients are held: all subnetworks read them as they are. Those
    of norms and of FixUp's scalar layers are shared by factors and summands, all others by entries.

    Args:
        net: any module.
        num_held: leading linear or convolutional layers, in the order of registration, that are
            held together with everything registered before the next one.
    """
    roles: dict[str, Role] = {}
    seen: set[int] = set()
    num_weighted = 0
    for layer_name, layer in net.named_modules():
        own = [(n, p) for n, p in layer.named_parameters(recurse=False) if id(p) not in seen]
        num_weighted += bool(own) and isinstance(layer, _ENTRIES)
        for name, parameter in own:
            seen.add(id(parameter))
            full = f"{layer_name}.{name}" if layer_name else name
            is_held = num_weighted <= num_held > 0 or not parameter.requires_grad
            roles[full] = Role.HELD if is_held else _role(layer, name)
    if Role.ENTRIES not in roles.values():
        raise ConfigError(
            f"a partitioned net must have weights to deal out, but {type(net).__name__} has "
            f"{len(roles)} parameters, of which {list(roles.values()).count(Role.HELD)} are held "
            "or fixed, and the others scale or shift. Hold fewer layers, or let weights require "
            "gradients."
        )
    return roles


def _role(layer: nn.Module, name: str) -> Role:
    for types, by_name in _ROLES.items():
        if isinstance(layer, types) and name in by_name:
            return by_name[name]
    return Role.ENTRIES
