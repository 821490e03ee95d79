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


def find(net: nn.Module, layer_type: type[Layer], *, exact: bool = False) -> dict[str, Layer]:
    """Find the layers of a type: name -> layer, in the order of registration.

    Layers inside a layer that matches are left out; so are subclasses, if `exact`. The net itself
    is found under the name "".
    """
    found: dict[str, Layer] = {}
    for name, module in net.named_modules():
        inside = any(name.startswith(f"{outer}." if outer else "") for outer in found)
        is_excluded = exact and type(module) is not layer_type
        if isinstance(module, layer_type) and not is_excluded and not inside:
            found[name] = module
    return found


def replace(
    net: nn.Module,
    layer_type: type[Layer],
    make: Callable[[str, Layer], nn.Module],
    *,
    expected: int | None = None,
    exact: bool = False,
) -> list[str]:
    """Replace every layer of a type in place, and return the names of the replaced layers.

    A layer registered under several names is replaced once, by one new layer under all of them.
    The new layers take over the train or eval mode of the old ones. If anything is refused, or
    `make` raises, the net is unchanged.

    Args:
        net: is changed.
        layer_type: what to replace.
        make: (name, old layer) to new layer.
        expected: how many layers must match; any positive number if None.
        exact: leave out subclasses of `layer_type`.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> replace(net, nn.ReLU, lambda name, layer: nn.GELU(), expected=1)
        ['1']
    """
    old = find(net, layer_type, exact=exact)
    kind = layer_type.__name__
    if "" in old:
        raise ConfigError(
            f"only layers inside a net can be replaced, but the net itself is a {kind}. "
            "Wrap it first: nn.Sequential(layer)."
        )
    if not old:
        types = sorted({type(module).__name__ for module in net.modules()} - {kind})
        raise ConfigError(
            f"at least one {kind} must be there to replace, but {type(net).__name__} has none. "
            f"It is made of: {', '.join(types)}."
        )
    if expected is not None and len(old) != expected:
        raise ConfigError(
            f"exactly {expected} layers of type {kind} were expected, but {len(old)} were found: "
            f"{', '.join(old)}. Correct `expected`, or choose the type more narrowly."
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
