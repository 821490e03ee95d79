"""Learnable scalars that stand in for normalisation (Zhang et al. 2019, FixUp).

They are modules, and not bare parameters, so that they can be found and replaced by type.
"""

import torch
from torch import nn


class Bias(nn.Module):
    """Adds one learnable number, initially 0."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape in, the same out."""
        return x + self.bias


class Scale(nn.Module):
    """Multiplies by one learnable number, initially 1."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape in, the same out."""
        return x * self.scale


def scalar_names(net: nn.Module) -> list[str]:
    """Names of the parameters that are FixUp scalars; they train at a tenth of the rate."""
    return [
        f"{module_name}.{name}" if module_name else name
        for module_name, module in net.named_modules()
        if isinstance(module, Bias | Scale)
        for name, _ in module.named_parameters(recurse=False)
    ]
