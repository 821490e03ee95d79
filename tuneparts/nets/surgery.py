"""Change a net through its layers or its weights, never through a copy of its code.

Layers are replaced by type (partitioned convolutions, learnt dropout, Gaussian weights). A layer
that was missed, or matched by accident, would train silently as something else; so the count is
checked before anything changes.

Weights that are not the net's own, composed or cut from those of another net, are used through a
shallow copy, `reweighted`. `torch.func.functional_call` swaps tensors in the net and back instead,
so that two threads that run one net at once compute with each other's weights.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import TypeVar

from torch import Tensor, nn

from tuneparts.core.errors import ConfigError

Layer = TypeVar("Layer", bound=nn.Module)


def find(net: nn.Module, layer_type: type[Layer]) -> dict[str, Layer]:
    """The layers of a type by name, in the order of registration, but none inside another."""
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

    A layer under several names is replaced once. If anything is refused, the net is unchanged.
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
    """Give the layers of a net, by their names, their modes back after the block."""
    modes = {name: layer.training for name, layer in net.named_modules()}
    try:
        yield
    finally:
        for name, layer in net.named_modules():
            layer.training = modes.get(name, modes[""])


def reweighted(net: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """A copy, for one forward pass, that uses these tensors and shares all else with the net."""
    copies: dict[nn.Module, nn.Module] = {}
    copy = _shallow(net, copies)
    recurrent: set[nn.RNNBase] = set()
    for name, tensor in tensors.items():
        layer, _, parameter = name.rpartition(".")
        place = copy.get_submodule(layer)
        # Past `register_parameter`, which takes nothing but an `nn.Parameter`.
        held = place._buffers if parameter in place._buffers else place._parameters
        held[parameter] = tensor  # type: ignore[assignment]
        if isinstance(place, nn.RNNBase):
            recurrent.add(place)
    for rnn in recurrent:  # these keep a second list of their parameters
        rnn.__dict__["_flat_weights"] = [rnn._parameters[n] for n in rnn._flat_weights_names]
    return copy


def under_all_names(net: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Name tensors also by the further names of tied parameters, so that these stay tied."""
    further = tied_names(net)
    names = {name: (name, *further.get(name, ())) for name in tensors}
    return {alias: tensors[name] for name, aliases in names.items() for alias in aliases}


def tied_names(net: nn.Module) -> dict[str, tuple[str, ...]]:
    """Further names of the parameters that several layers hold, by their first name."""
    first = {id(parameter): name for name, parameter in net.named_parameters()}
    found: dict[str, tuple[str, ...]] = {}
    for layer, module in net.named_modules():
        for key, parameter in module._parameters.items():
            name = f"{layer}.{key}" if layer else key
            if parameter is not None and first[id(parameter)] != name:
                found[first[id(parameter)]] = (*found.get(first[id(parameter)], ()), name)
    return found


def give_up(net: nn.Module, names: Iterable[str]) -> None:
    """Remove these parameters from a net, which then works under `reweighted` only."""
    for name in names:
        layer, _, parameter = name.rpartition(".")
        del net.get_submodule(layer)._parameters[parameter]


def standalone(net: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """Copy a net as an ordinary one that owns everything, with copies of these tensors."""
    own = deepcopy(net)
    for name, tensor in tensors.items():
        layer, _, parameter = name.rpartition(".")
        value = nn.Parameter(tensor.detach().clone())
        own.get_submodule(layer).register_parameter(parameter, value)
    return own


def _shallow(module: nn.Module, copies: dict[nn.Module, nn.Module]) -> nn.Module:
    """Copy a module and its children, but none of their tensors, hooks and settings."""
    if module not in copies:  # a layer under two names stays one layer
        copy = copies[module] = module.__new__(type(module))
        copy.__dict__ = dict(module.__dict__)
        copy._compiled_call_impl = None  # of `module.compile()`: it calls the original
        copy._parameters = dict(module._parameters)
        copy._buffers = dict(module._buffers)
        copy._modules = {
            name: None if child is None else _shallow(child, copies)
            for name, child in module._modules.items()
        }
    return copies[module]
