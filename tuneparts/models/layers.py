"""Layers that nets here use and torch lacks: learnable scalars, and a shortcut without weights.

The scalars stand in for normalisation in FixUp nets (Zhang et al. 2019). They are modules, and not
bare parameters, so that they can be found and replaced by type.
"""

import torch
from torch import nn

_NORMS = (
    nn.modules.batchnorm._NormBase,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.RMSNorm,
)


class Bias(nn.Module):
    """Adds one learnable number, initially 0."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape in, the same out."""
        return x + self.bias


class ScalarMultiplier(nn.Module):
    """Multiplies by one learnable number, initially 1."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape in, the same out."""
        return x * self.scale


def scalar_names(net: nn.Module) -> list[str]:
    """Names of the parameters of a net that are learnable scalars of FixUp."""
    return [
        f"{module_name}.{name}" if module_name else name
        for module_name, module in net.named_modules()
        if isinstance(module, Bias | ScalarMultiplier)
        for name, _ in module.named_parameters(recurse=False)
    ]


def norm_names(net: nn.Module) -> list[str]:
    """Names of the parameters of a net that belong to its norms."""
    return [
        f"{module_name}.{name}" if module_name else name
        for module_name, module in net.named_modules()
        if isinstance(module, _NORMS)
        for name, _ in module.named_parameters(recurse=False)
    ]


class PaddedShortcut(nn.Module):
    """The shortcut without weights: every `stride`-th pixel, and zeros for `num_new` channels.

    It is option A of He et al. (2016). Subsampling equals average pooling with a 1x1 kernel, as
    FixUp writes it.
    """

    def __init__(self, stride: int, num_new: int) -> None:
        super().__init__()
        self.stride = stride
        self.num_new = num_new

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """(B, C, H, W) to (B, C + num_new, ceil(H / stride), ceil(W / stride))."""
        strided = x_BCHW[..., :: self.stride, :: self.stride]
        return nn.functional.pad(strided, (0, 0, 0, 0, 0, self.num_new))

    def extra_repr(self) -> str:
        """The arguments, for printing."""
        return f"stride={self.stride}, num_new={self.num_new}"
