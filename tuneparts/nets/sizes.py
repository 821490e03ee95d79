"""How large a net is: trainable weights and floating-point operations."""

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tuneparts.nets.surgery import reweighted


def count_parameters(net: nn.Module) -> int:
    """Count trainable weights; a weight shared between layers counts once."""
    return sum(p.numel() for p in net.parameters() if p.requires_grad)


def count_flops(net: nn.Module, in_shape: tuple[int, ...], *, is_whole: bool = False) -> int:
    """Operations (a multiply-add is two) of one example, which is whole numbers if `is_whole`."""
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        shapes_of(net)(shape_of_one(net, in_shape, is_whole=is_whole))
    return counter.get_total_flops()


def shapes_of(net: nn.Module) -> nn.Module:
    """Copy a net, in evaluation mode, onto the meta device, where a pass has shapes alone."""
    tensors = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    shapes = {name: torch.empty_like(tensor, device="meta") for name, tensor in tensors.items()}
    return reweighted(net, shapes).eval()


def shape_of_one(net: nn.Module, in_shape: tuple[int, ...], *, is_whole: bool = False) -> Tensor:
    """An input of one example for `shapes_of` a net; arguments as in `count_flops`."""
    real = next((p.dtype for p in net.parameters()), torch.float32)
    dtype = torch.int64 if is_whole else real
    return torch.empty(1, *in_shape, dtype=dtype, device="meta")
