"""What a partition owns of each parameter, by the type of its layer (Mlodozeniec et al. 2023, I.2).

Linear and convolutional weights are dealt out entry by entry. The affine parameters of norms and
the scalars of FixUp have too few entries and too much effect for that: every partition has a
scale and a shift of its own, and subnetwork k applies the product and the sum of the first k.
"""

from collections.abc import Mapping
from enum import Enum

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm

from tuneparts.errors import ConfigError
from tuneparts.models.layers import Bias, ScalarMultiplier


class Role(Enum):
    """How a parameter is shared among partitions."""

    ENTRIES = "each entry belongs to one partition"
    PRODUCT = "each partition has a factor"
    SUM = "each partition has a summand"
    HELD = "belongs to no partition"


NORMS = (_BatchNorm, _InstanceNorm, nn.GroupNorm, nn.LayerNorm)
_ENTRIES = (nn.Linear, _ConvNd)
_ROLES: dict[tuple[type[nn.Module], ...], Mapping[str, Role]] = {
    _ENTRIES: {"weight": Role.ENTRIES, "bias": Role.ENTRIES},
    NORMS: {"weight": Role.PRODUCT, "bias": Role.SUM},
    (ScalarMultiplier,): {"scale": Role.PRODUCT},
    (Bias,): {"bias": Role.SUM},
}


def roles_of(net: nn.Module, *, num_held: int = 0) -> dict[str, Role]:
    """The role of every parameter by name; refuses a layer that cannot be partitioned.

    Parameters that do not require gradients are held: all subnetworks read them as they are.

    Args:
        net: any module whose parameters sit in linear, convolutional, norm, and scalar layers.
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
            roles[full] = Role.HELD if is_held else _role(layer_name, layer, name)
    if Role.ENTRIES not in roles.values():
        raise ConfigError(
            f"a partitioned net must have linear or convolutional weights to deal out, but "
            f"{type(net).__name__} has {num_weighted} such layers, of which {num_held} are held. "
            "Hold fewer layers, or let the weights require gradients."
        )
    return roles


def _role(layer_name: str, layer: nn.Module, name: str) -> Role:
    for types, by_name in _ROLES.items():
        if isinstance(layer, types) and name in by_name:
            return by_name[name]
    raise ConfigError(
        "only linear, convolutional, norm, Bias and ScalarMultiplier layers can be partitioned, "
        f"but `{layer_name or 'the net itself'}` is a {type(layer).__name__} with a parameter "
        f"`{name}`. Build it from those layers, or set `requires_grad=False` on what stays fixed."
    )
