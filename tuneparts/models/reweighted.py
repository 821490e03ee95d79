"""A net under weights that are not its own: composed, or cut from those of another net.

`torch.func.functional_call` does this by swapping tensors in the net and swapping them back, and
two threads that run one net at once then compute with each other's weights. Here the net is left
alone: `reweighted` makes a shallow copy that holds the given tensors.
"""

from collections.abc import Iterable, Mapping
from copy import deepcopy

from torch import Tensor, nn


def reweighted(net: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """Copy a net so that it uses these tensors and shares everything else with the original.

    The copy is meant for one forward pass. It has the train or eval mode of the moment it was made;
    running statistics that are not replaced, and hooks, are those of the original. The net may have
    given up the parameters that are replaced; tensors, by name, may be part of a graph.

    Example:
        >>> import torch
        >>> net = nn.Sequential(nn.Linear(2, 1, bias=False))
        >>> doubled = reweighted(net, {"0.weight": 2 * net[0].weight})
        >>> x = torch.ones(1, 2)
        >>> torch.equal(doubled(x), 2 * net(x))
        True
    """
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
    """Remove these parameters from a net, which then works under `reweighted` only.

    They are no longer trained, counted or saved with the net.
    """
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
