"""What nets here share: learnable scalars, a shortcut without weights, and initialisation.

The scalars stand in for normalisation in FixUp nets (Zhang et al. 2019). They are modules, and not
bare parameters, so that they can be found and replaced by type.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

Net = TypeVar("Net", bound=nn.Module)


class Bias(nn.Module):
    """Adds one learnable number, initially 0."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


class ScalarMultiplier(nn.Module):
    """Multiplies by one learnable number, initially 1."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def scaled_by_row(layer: nn.Module, x: Tensor, values: Mapping[str, Tensor]) -> Tensor:
    """The output of a norm or scalar layer whose parameters (N, ...) differ between the N rows."""
    if isinstance(layer, nn.GroupNorm):
        x = nn.functional.group_norm(x, layer.num_groups, eps=layer.eps)
    elif isinstance(layer, nn.LayerNorm):
        x = nn.functional.layer_norm(x, layer.normalized_shape, eps=layer.eps)
    for kind, rows in values.items():
        gap = [1] * (x.dim() - rows.dim())
        # They meet the channels of (N, C, ...), or the end of (N, ..., D).
        at_end = isinstance(layer, nn.LayerNorm)
        shape = (len(rows), *gap, *rows.shape[1:]) if at_end else (*rows.shape, *gap)
        x = x + rows.view(shape) if kind == "bias" else x * rows.view(shape)
    return x


SCALARS = (Bias, ScalarMultiplier)
NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


def names_of(net: nn.Module, types: tuple[type[nn.Module], ...]) -> list[str]:
    """Names of the parameters of a net that belong to layers of these types."""
    return [
        name
        for layer, module in net.named_modules()
        if isinstance(module, types)
        for name, _ in module.named_parameters(layer, recurse=False)
    ]


class _PaddedShortcut(nn.Module):
    """Every `stride`-th pixel, and zeros for `num_new` channels (option A of He et al. 2016)."""

    def __init__(self, stride: int, num_new: int) -> None:
        super().__init__()
        self.stride = stride
        self.num_new = num_new

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """(B, C, H, W) to (B, C + num_new, ceil(H / stride), ceil(W / stride))."""
        strided = x_BCHW[..., :: self.stride, :: self.stride]
        return nn.functional.pad(strided, (0, 0, 0, 0, 0, self.num_new))

    def extra_repr(self) -> str:
        return f"stride={self.stride}, num_new={self.num_new}"


def _kaiming_uniform(net: Net) -> Net:
    """Draw linear and convolution weights from U(-b, b), b = sqrt(6 / fan_in); biases are zero."""
    return _initialised(net, partial(nn.init.kaiming_uniform_, nonlinearity="relu"))


def _kaiming_normal(net: Net, fan: Literal["fan_in", "fan_out"]) -> Net:
    """Draw linear and convolution weights from N(0, 2 / fan); biases are zero."""
    return _initialised(net, partial(nn.init.kaiming_normal_, mode=fan, nonlinearity="relu"))


def _initialised(net: Net, draw: Callable[[Tensor], object]) -> Net:
    for layer in net.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            draw(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return net
