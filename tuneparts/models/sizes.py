"""How large a net is: trainable weights and floating-point operations, by type of layer."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.func import functional_call
from torch.utils.flop_counter import FlopCounterMode


@dataclass(frozen=True)
class LayerSizes:
    """One row: all layers of one type together."""

    layer_type: str
    num_layers: int
    num_parameters: int
    flops: int


@dataclass(frozen=True)
class NetSizes:
    """Sizes of a whole net, and of its layers with weights by type."""

    num_parameters: int
    flops: int
    """Of one forward pass at batch size 1; a multiply-add counts as two."""
    rows: tuple[LayerSizes, ...]


def count_parameters(net: nn.Module) -> int:
    """Trainable weights; a weight shared between layers counts once."""
    return sum(p.numel() for p in net.parameters() if p.requires_grad)


def count_flops(net: nn.Module, in_shape: tuple[int, ...]) -> int:
    """Operations of matrix products and convolutions in one forward pass at batch size 1."""
    return _flops_by_name(net, in_shape)[""]


def measure(net: nn.Module, in_shape: tuple[int, ...]) -> NetSizes:
    """Parameters and FLOPs, in all and by type of layer, in the order of the layers.

    Args:
        net: on any device; it is neither copied nor changed.
        in_shape: shape of one input.
    """
    flops = _flops_by_name(net, in_shape)
    layers = {name: module for name, module in net.named_modules() if _own_weights(module)}
    owner = {id(p): name for name in reversed(layers) for p in _own_weights(layers[name])}
    rows = []
    for kind in dict.fromkeys(type(layer) for layer in layers.values()):
        of_kind = {name: layer for name, layer in layers.items() if type(layer) is kind}
        num_parameters = sum(
            p.numel()
            for name, layer in of_kind.items()
            for p in _own_weights(layer)
            if owner[id(p)] == name  # a shared weight belongs to the first layer that has it
        )
        num_flops = sum(flops.get(name, 0) for name in of_kind)
        rows.append(LayerSizes(kind.__name__, len(of_kind), num_parameters, num_flops))
    return NetSizes(count_parameters(net), flops[""], tuple(rows))


def _own_weights(module: nn.Module) -> list[nn.Parameter]:
    return [p for p in module.parameters(recurse=False) if p.requires_grad]


def _flops_by_name(net: nn.Module, in_shape: tuple[int, ...]) -> dict[str, int]:
    """FLOPs below each module by its name; "" is the whole net."""
    # Shapes are all that counts, so the pass runs on the meta device: no arithmetic, no memory.
    tensors = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    shapes = {name: torch.empty_like(tensor, device="meta") for name, tensor in tensors.items()}
    dtype = next((p.dtype for p in net.parameters()), torch.float32)
    x = torch.empty(1, *in_shape, dtype=dtype, device="meta")
    modes = {module: module.training for module in net.modules()}
    counter = FlopCounterMode(display=False)
    try:
        net.eval()  # in train mode BatchNorm refuses a single value per channel
        with torch.no_grad(), counter:
            functional_call(net, shapes, (x,))
    finally:
        for module, training in modes.items():
            module.training = training
    root = type(net).__name__
    counts = {name: sum(ops.values()) for name, ops in counter.get_flop_counts().items()}
    below = {
        name.removeprefix(f"{root}."): number
        for name, number in counts.items()
        if name.startswith(f"{root}.")
    }
    return {**below, "": counts.get("Global", 0)}
