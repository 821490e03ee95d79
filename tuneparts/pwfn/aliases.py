"""Parameters that share memory without being one parameter, as after `a.data = b.data`.

Torch copies such parameters apart and moves them twice in a step, and a file that holds both would
load one over the other. They are refused; a true tie, one parameter under two names, is not.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from tuneparts.errors import ConfigError


def refuse_aliases(net: nn.Module) -> None:
    """Refuse a net of which a parameter shares memory with another tensor of its state.

    Buffers may share memory with each other, as slices of one mask do. So may parameters that are
    parts of one tensor, as long as no number belongs to two.

    Example:
        >>> net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        >>> net[1].weight = net[0].weight
        >>> refuse_aliases(net)
    """
    for (name, one), (other_name, other) in _overlapping(_in_memory(net)):
        if not _share(one, other):
            continue
        raise ConfigError(
            "a parameter must have memory of its own or be the same parameter under two names, but "
            f"`{name}` {_described(one)} and `{other_name}` {_described(other)} share theirs. "
            + (
                "Tie them as one parameter, such as `net.head.weight = net.embed.weight`."
                if _is_tie(one, other)
                else f"Copy one: `{other_name}.data = {other_name}.data.clone()`."
            )
        )


def _described(tensor: Tensor) -> str:
    return f"of shape {tuple(tensor.shape)}"


def _is_tie(one: Tensor, other: Tensor) -> bool:
    """Whether two parameters are the same numbers at the same places."""
    places = [
        (t.data_ptr(), t.shape, t.stride(), isinstance(t, nn.Parameter)) for t in (one, other)
    ]
    return places[0] == places[1]


def _in_memory(net: nn.Module) -> dict[str, Tensor]:
    """The tensors of a net's state that have an address, once each, by their first name."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, value in net.state_dict(keep_vars=True).items():
        is_usual = isinstance(value, Tensor) and not is_lazy(value)
        if is_usual and value.layout is torch.strided and value.numel() and not value.is_meta:
            found.setdefault(id(value), (name, value))
    return dict(found.values())


def _overlapping(
    tensors: Mapping[str, Tensor],
) -> Iterator[tuple[tuple[str, Tensor], tuple[str, Tensor]]]:
    """Pairs with at least one parameter whose stretches of memory overlap."""
    # Quick for large nets: in this order a stretch meets only those that begin before its end.
    items = sorted(tensors.items(), key=lambda item: (str(item[1].device), item[1].data_ptr()))
    for number, (name, one) in enumerate(items):
        for other_name, other in items[number + 1 :]:
            if other.device != one.device or other.data_ptr() >= _end(one):
                break
            if isinstance(one, nn.Parameter) or isinstance(other, nn.Parameter):
                yield (name, one), (other_name, other)


def _end(tensor: Tensor) -> int:
    """The address after the last number."""
    sides = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in sides)
    return tensor.data_ptr() + (last + 1) * tensor.itemsize


def _share(one: Tensor, other: Tensor) -> bool:
    if one.data_ptr() == other.data_ptr():
        return True
    return bool(torch.isin(_addresses(one), _addresses(other)).any())


def _addresses(tensor: Tensor) -> Tensor:
    """Where each number of a tensor lies."""
    at = torch.tensor(tensor.data_ptr())
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        at = at.unsqueeze(-1) + torch.arange(size) * stride * tensor.itemsize
    return at.flatten()
