"""What members keep for themselves, and what of it a budget counts.

A budget of the paper counts templates, and leaves norms, biases and heads outside. Nets of one's
own may also have layers that cannot share, such as an LSTM or an embedding. Their weights are
matrices and kernels like those that templates replace, and so they are counted.
"""

from collections.abc import Collection, Mapping, Sequence

from torch import nn

from tuneparts.errors import ConfigError
from tuneparts.models.layers import norm_names

_NUM_NAMED = 3
"""Weights that an error names, the largest ones first."""


def kept_weights(net: nn.Module, name: str) -> list[nn.Parameter]:
    """The weights of a layer, or the parameter of that name; biases only of layers without weights.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
        >>> [[tuple(p.shape) for p in kept_weights(net, name)] for name in ("0", "1", "0.bias")]
        [[(3, 4)], [(3,), (3,)], [(3,)]]
    """
    by_name = dict(net.named_parameters(remove_duplicate=False))
    if name in by_name:
        return [by_name[name]]
    own = list(net.get_submodule(name).parameters(recurse=False))
    return [p for p in own if p.dim() > 1] or own


def unshared_weights(
    net: nn.Module, shared: Collection[str], heads: Collection[str]
) -> dict[str, int]:
    """Sizes of the weights that a budget counts beside templates, by the parameter's name.

    These are the trainable matrices and kernels of a member that neither share nor belong to a
    head or a norm. A weight under several names counts once.

    Args:
        net: a member.
        shared: its layers that share.
        heads: its layers that make outputs.

    Example:
        >>> net = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(8, 6), nn.Linear(6, 3))
        >>> unshared_weights(net, ["2"], ["3"])
        {'0.weight': 40}
    """
    outside = {*norm_names(net), *(f"{layer}.weight" for layer in (*shared, *heads))}
    found: dict[int, tuple[str, int]] = {}
    for layer, module in net.named_modules():  # a layer under two names comes once
        for key, p in module.named_parameters(layer, recurse=False):
            if key not in outside and p.requires_grad and p.dim() > 1:
                found.setdefault(id(p), (key, p.numel()))
    return dict(found.values())


def left_for_templates(budget: int, unshared: Sequence[Mapping[str, int]]) -> int:
    """What remains of a budget for templates.

    Args:
        budget: of templates and of weights that cannot share.
        unshared: from `unshared_weights`, for each member.

    Raises:
        ConfigError: Nothing remains.
    """
    total = sum(sum(sizes.values()) for sizes in unshared)
    if budget <= 0:  # refused as such, whatever there is to count
        return budget
    if total >= budget:
        raise ConfigError(
            "the budget counts templates and the weights of layers that cannot share, but is "
            f"{budget}, and the latter alone are {total}: {named(unshared)}. Raise it, or count "
            f"templates alone by `allocation={{'budget': {budget}}}`."
        )
    return budget - total


def named(unshared: Sequence[Mapping[str, int]]) -> str:
    """The largest weights that cannot share, with their sizes, for an error."""
    ranked = sorted(
        (
            (size, member, name)
            for member, sizes in enumerate(unshared)
            for name, size in sizes.items()
        ),
        key=lambda row: (-row[0], row[1]),
    )
    listed = [f"`{name}` of member {member} ({size})" for size, member, name in ranked]
    more = f" and {len(listed) - _NUM_NAMED} more" if len(listed) > _NUM_NAMED else ""
    return ", ".join(listed[:_NUM_NAMED]) + more
