"""What members keep for themselves, and what of it a budget counts.

A budget of the paper counts templates, and leaves norms, biases and heads outside. Nets of one's
own may also have layers that cannot share, such as an LSTM or an embedding. Their weights are
matrices and kernels like those that templates replace, and so they are counted.
"""

from collections.abc import Collection, Mapping, Sequence

from torch import nn

from tuneparts.models.layers import norm_names


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


def with_unshared(message: str, budget: int, unshared: Sequence[Mapping[str, int]]) -> str:
    """Add to what is wrong with a budget what it holds beside templates, the largest ones named."""
    sizes = [(n, f"`{k}` of member {m}") for m, one in enumerate(unshared) for k, n in one.items()]
    largest = ", ".join(f"{name} ({n})" for n, name in sorted(sizes, key=lambda size: -size[0])[:3])
    return (
        f"{message} The budget of {budget} also counts {sum(n for n, _ in sizes)} weights of "
        f"layers that cannot share: {largest}. Raise it, or bound templates alone by "
        "`allocation={'budget': ...}`."
    )
