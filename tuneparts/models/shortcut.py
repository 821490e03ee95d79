"""The shortcut without weights: every n-th pixel, and zeros for new channels (He et al. 2016)."""

import torch
from torch import nn


class PaddedShortcut(nn.Module):
    """Subsamples space by `stride` and appends `num_new` channels of zeros.

    Subsampling equals average pooling with a 1x1 kernel, as FixUp writes it.
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
