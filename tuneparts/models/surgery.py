"""Replace the layers of a net by type, with a checked count.

A method changes a net through its layers (partitioned convolutions, learnt dropout, Gaussian
weights) and never through a copy of the net's code. A layer that was missed, or matched by
accident, would train silently as something else; so the count is checked before anything changes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from torch import nn

from tuneparts.core.errors import ConfigError

Layer = TypeVar("Layer", bound=nn.Module)


def find(net: nn.Module, layer_type: type[Layer]) -> dict[str, Layer]:
    """Find the layers of a type: name -> layer, in the order of registration.

    Layers inside a layer that matches are left out. The net itself is found under the name "".
    """
    found: dict[str, Layer] = {}
    for name, module in net.named_modules():
        is_inside = any(name.startswith(f"{outer}." if outer else "") for outer in found)
        if isinstance(module, layer_type) and not is_inside:
            found[name] = module
    return found


def replace(
    net: nn.Module,
    layer_type: type[Layer],
    make: Callable[[str, Layer], nn.Module],
    *,
    expected: int | None = None,
) -> list[str]:
    """Replace every layer of a type in place, and return the names of the replaced layers.

    A layer registered under several names is replaced once, by one new layer under all of them.
    The new layers, made from (name, old layer), take over the train or eval mode of the old ones.
    If anything is refused, such as another number than expected, or `make` raises, the net is
    unchanged.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> replace(net, nn.ReLU, lambda name, layer: nn.GELU(), expected=1)
        ['1']
    """
    old, kind = find(net, layer_type), layer_type.__name__
    if "" in old:
        raise ConfigError(
            f"the net itself is a {kind}, but only layers inside a net can be replaced. Wrap it "
            "first: nn.Sequential(layer)."
        )
    if not old or (expected is not None and len(old) != expected):
        types = sorted({type(module).__name__ for module in net.modules()})
        raise ConfigError(
            f"{len(old)} layers of type {kind} were found ({', '.join(old)}), but "
            f"{expected or 'at least 1'} expected in a net that is made of {', '.join(types)}."
        )
    new = {id(layer): make(name, layer).train(layer.training) for name, layer in old.items()}
    places = [(name, id(m)) for name, m in net.named_modules(remove_duplicate=False)]
    for name, key in places:
        if key in new:
            net.set_submodule(name, new[key])
    return list(old)


@contextmanager
def modes_kept(net: nn.Module) -> Iterator[None]:
    """Give the layers of a net their modes, training or evaluation, back after the block.

    Layers are known by their names, so one that took another's place takes over its mode.
    """
    modes = {name: layer.training for name, layer in net.named_modules()}
    try:
        yield
    finally:
        for name, layer in net.named_modules():
            layer.training = modes.get(name, modes[""])
