"""What an unknown net does, seen by running copies of it before anything of it is changed.

A method that replaces layers, or gives them other weights, relies on what torch does not promise:
that a layer computes with its own weight when it is called, and that nothing else reads it.
Attention reads the weight of a layer that it never calls, a tied weight has two owners, and a net
may keep its layers in a list of its own.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError

_WIDEST = 256
"""Channels of a convolution up to which pixel by pixel is quicker: at 512 it takes half as long
again, for batches of 8 and of 32."""
_FEWEST = 8
"""Input channels below which the gradient of a strided 1 x 1 convolution, pixel by pixel, writes
beyond its memory on CPUs without AVX-512: torch 2.13 with oneDNN 3.12."""
_KEEP_ORDER = ("torch.nn.", "torchvision.", "tuneparts.nets.", "tuneparts.hypers.")


def lay_out(
    net: nn.Module,
    in_shape: tuple[int, ...],
    device: torch.device,
    *,
    channels_last: bool | None = None,
) -> nn.Module:
    """The net with a hook that reorders its inputs; None decides by net and device."""
    if channels_last is None:
        channels_last = _is_quicker(net, in_shape, device)
    hooks = net._forward_pre_hooks
    for key in [key for key, hook in hooks.items() if hook is _reorder_first]:
        del hooks[key]
    if channels_last:
        net.register_forward_pre_hook(_reorder_first)
    return net


def _is_quicker(net: nn.Module, in_shape: tuple[int, ...], device: torch.device) -> bool:
    """Whether pixel by pixel is quicker for a net (by a quarter), and the net can take it."""
    convolutions = [layer for layer in net.modules() if isinstance(layer, nn.Conv2d)]
    if device.type != "cpu" or len(in_shape) != 3 or not convolutions:
        return False
    for layer in convolutions:
        channels, is_product = layer.in_channels // layer.groups, layer.kernel_size == (1, 1)
        if channels > _WIDEST and not is_product:
            return False
        if channels < _FEWEST and is_product and max(layer.stride) > 1:
            return False
    if all(type(layer).__module__.startswith(_KEEP_ORDER) for layer in net.modules()):
        return True
    # Whether your own net works so; a `view` across channels and pixels does not.
    called = copy.deepcopy(net).cpu().eval()
    with torch.no_grad(), seeding.alone():
        try:
            called(channels_last(torch.zeros(2, *in_shape)))
        except RuntimeError:
            return False
    return True


def channels_last(x_BCHW: Tensor) -> Tensor:
    """The same images, pixel by pixel; a view where they have one channel."""
    B, C, H, W = x_BCHW.shape
    if C == 1:  # lies the same either way, but torch decides by strides
        return x_BCHW.reshape(B, H, W, 1).permute(0, 3, 1, 2)
    return x_BCHW.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


def _reorder_first(_: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
    x, *rest = given
    return (channels_last(x), *rest) if x.dim() == 4 else given


PROBE = 8
"""Examples that a net is run on."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_KNOWN = ("torch.nn.", "tuneparts.nets.", "tuneparts.hypers.")
_RANDOM = (_DropoutNd, nn.RReLU, nn.MultiheadAttention, nn.RNNBase, nn.FractionalMaxPool2d)

Lend = Callable[[nn.Module, Mapping[str, Tensor]], nn.Module]
"""From a net and tensors by parameter name to a net that computes with these tensors."""


@dataclass(frozen=True)
class _Survey:
    """The layers of a net that can be taken over, and what else has parameters."""

    layers: tuple[str, ...]
    """Plain Linear and Conv2d layers that own their weights, in the order of the first calls."""
    left_out: dict[str, str]
    """Any other layer, or parameter outside layers, by name: the reason."""


def takeable(net: nn.Module, x: Tensor, lend: Lend, keys: Sequence[str]) -> _Survey:
    """The layers that a pass over `x` calls, and that compute with `keys` that they are lent."""
    probed = deepcopy(net)
    called: dict[str, None] = {}
    for name, module in probed.named_modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            module.register_forward_pre_hook(lambda _m, _x, name=name: called.setdefault(name))
    for training in (False, True):
        outputs(probed, x, training=training)
    owners: dict[int, list[str]] = {}
    for name, module in net.named_modules():
        for key, parameter in module.named_parameters(name, recurse=False):
            owners.setdefault(id(parameter), []).append(key)
    left_out: dict[str, str] = {}
    usable: set[str] = set()
    for name, module in net.named_modules():
        own = {key: p for key, p in module._parameters.items() if p is not None}
        if own and (not name or any(child is not None for child in module.children())):
            reason = f"is a parameter of a {type(module).__name__} itself, outside its layers"
            left_out |= {f"{name}.{key}" if name else key: reason for key in own}
        elif own:
            why_not = _reason(name, module, own, owners)
            if why_not is None and name in called:
                usable.add(name)
            else:
                left_out[name] = why_not or "is never called in a forward pass"

    def works(layers: Sequence[str]) -> bool:
        held = {layer: dict(net.get_submodule(layer).named_parameters()) for layer in layers}
        return is_lent(net, x, [f"{n}.{key}" for n in held for key in keys if key in held[n]], lend)

    layers = [name for name in called if name in usable]
    if not works(layers):
        left_out |= {name: "is read past its own call" for name in layers if not works([name])}
        layers = [name for name in layers if name not in left_out]
        if layers and not works(layers):
            raise ConfigError(
                f"other weights in `{'`, `'.join(layers)}` do not change the net as they should: "
                "layers must be called through the net's own attributes."
            )
    return _Survey(tuple(layers), left_out)


def copied(net: nn.Module) -> nn.Module:
    """A deep copy; refuses nets that torch cannot copy."""
    try:
        return deepcopy(net)
    except RuntimeError as error:
        raise ConfigError(
            f"the net must be copyable by `copy.deepcopy`, but: {error} Use `weight_norm` of "
            "`torch.nn.utils.parametrizations`, not of `torch.nn.utils`."
        ) from error


def outputs(net: nn.Module, x: Tensor, *, training: bool) -> Tensor:
    """Logits (B, K) of a net that may be left changed; refuses a net that makes none."""
    net.train(training)
    was_fast = torch.backends.mha.get_fastpath_enabled()
    # In evaluation torch passes all weights of attention to one kernel, past the layers.
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with seeding.isolated(0, "probe"), torch.no_grad():
            logits_BK = net(x)
    except Exception as error:  # whatever somebody else's forward raises
        raise ConfigError(
            f"the net must take {str(x.dtype).removeprefix('torch.')} inputs of shape "
            f"{tuple(x.shape)}, but its forward raised {type(error).__name__}: {error}"
        ) from error
    finally:
        torch.backends.mha.set_fastpath_enabled(was_fast)
    if not isinstance(logits_BK, Tensor) or logits_BK.ndim != 2 or len(logits_BK) != len(x):
        kind = tuple(logits_BK.shape) if isinstance(logits_BK, Tensor) else type(logits_BK).__name__
        raise ConfigError(
            f"the net must make logits (B, K), and nothing else, but {len(x)} inputs gave {kind}."
        )
    return logits_BK


def check_logits(net: nn.Module, x: Tensor, num_classes: int, *, are_classes: bool = True) -> None:
    """Refuse a net with fewer outputs than classes, or not as many as labels; it is not changed."""
    width = outputs(copied(net), x, training=False).shape[1]
    if width < num_classes or (width > num_classes and not are_classes):
        what = "classes (labels count from 0)" if are_classes else "labels of each example"
        raise ConfigError(
            f"the net needs an output each, but has {width} for {num_classes} {what}."
        )


def is_lent(net: nn.Module, x: Tensor, names: Sequence[str], lend: Lend) -> bool:
    """Whether a net that is lent these parameters computes what a net that owns them does."""
    generator = torch.Generator().manual_seed(0)
    owner = deepcopy(net)
    values: dict[str, Tensor] = {}
    with torch.no_grad():
        for name in names:
            parameter = owner.get_parameter(name)
            noise = torch.randn(parameter.shape, generator=generator).to(parameter)
            parameter.add_(noise * parameter.abs().mean().clamp(min=0.01))
            values[name] = parameter.detach().clone()
    try:
        return all(
            torch.equal(
                outputs(lend(deepcopy(net).train(training), values), x, training=training),
                outputs(deepcopy(owner), x, training=training),
            )
            for training in (False, True)
        )
    except (ConfigError, AttributeError, KeyError):
        return False


def is_known(net: nn.Module) -> bool:
    """Whether all layers are torch's or ours: they mix no rows of a batch."""
    return all(type(module).__module__.startswith(_KNOWN) for module in net.modules())


def draws_globally(net: nn.Module, x: Tensor) -> bool:
    """Whether a net, with slots for `nn.Dropout`, reads torch's global generator in training."""
    random = [m for m in net.modules() if isinstance(m, _RANDOM) and not isinstance(m, nn.Dropout)]
    if is_known(net) and not random:
        return False
    called = deepcopy(net).cpu().train()
    with seeding.isolated(0, "probe"), torch.no_grad():
        before = torch.get_rng_state()
        called(x.cpu())
        return not torch.equal(before, torch.get_rng_state())


def _reason(
    name: str, module: nn.Module, own: Mapping[str, Tensor], owners: Mapping[int, Sequence[str]]
) -> str | None:
    """Why a layer cannot be taken over; `owners` has the names of each parameter by its id."""
    kind = type(module)
    if kind not in {nn.Linear, nn.Conv2d}:
        return f"is a {kind.__name__}, not a plain Linear or Conv2d"
    for key, parameter in own.items():
        others = [other for other in owners[id(parameter)] if other != f"{name}.{key}"]
        if others:
            return f"shares its {key} with `{others[0]}`"
        if parameter.dtype != torch.float32:
            return f"has a {key} of type {str(parameter.dtype).removeprefix('torch.')}, not float32"
    if set(own) - {"weight", "bias"} or any(getattr(module, hooks) for hooks in _HOOKS):
        return "has hooks or parameters of its own"
    return "has a forward of its own" if "forward" in module.__dict__ else None
