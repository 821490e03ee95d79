"""In which order a net's images lie in memory: plane by plane, or pixel by pixel.

On a CPU, convolutions, pooling and norms take a quarter less time with `torch.channels_last` unless
the convolutions are very wide. The layout changes no value but for rounding. It follows the inputs:
torch's layers keep the order that they are given. So weights, states and files stay as they are.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from tuneparts.core import seeding

_WIDEST = 256
"""Channels of a convolution up to which pixel by pixel is quicker: at 512 it takes half as long
again, for batches of 8 and of 32."""
_FEWEST = 8
"""Input channels below which the gradient of a strided 1 x 1 convolution, pixel by pixel, writes
beyond its memory on CPUs without AVX-512: torch 2.13 with oneDNN 3.12."""
_KNOWN = ("torch.nn.", "torchvision.", "tuneparts.models.", "tuneparts.hypers.")


def lay_out(
    net: nn.Module,
    in_shape: tuple[int, ...],
    device: torch.device,
    *,
    channels_last: bool | None = None,
) -> nn.Module:
    """The net with a hook that reorders its inputs; None decides by net and device."""
    if channels_last is None:
        channels_last = is_quicker(net, in_shape, device)
    hooks = net._forward_pre_hooks
    for key in [key for key, hook in hooks.items() if hook is _reorder_first]:
        del hooks[key]
    if channels_last:
        net.register_forward_pre_hook(_reorder_first)
    return net


def is_quicker(net: nn.Module, in_shape: tuple[int, ...], device: torch.device) -> bool:
    """Whether pixel by pixel is quicker for a net, and the net can take it."""
    convolutions = [layer for layer in net.modules() if isinstance(layer, nn.Conv2d)]
    if device.type != "cpu" or len(in_shape) != 3 or not convolutions:
        return False
    for layer in convolutions:
        channels, is_product = layer.in_channels // layer.groups, layer.kernel_size == (1, 1)
        if channels > _WIDEST and not is_product:
            return False
        if channels < _FEWEST and is_product and max(layer.stride) > 1:
            return False
    if all(type(layer).__module__.startswith(_KNOWN) for layer in net.modules()):
        return True
    # Whether a net of one's own works so; a `view` across channels and pixels does not.
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
