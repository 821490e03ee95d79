"""The two layouts in which the activations of all lanes stand in one tensor.

Stacked: (P, N, ...), a matrix product of each lane then is one batched product. Wide: images
(N, P * C, H, W) in `channels_last` memory, the channels of a lane side by side, so that a
convolution of each lane is one grouped convolution, and pooling reads long runs of channels.

Legend: P lanes, N inputs of each, C channels, H height, W width.
"""

import torch
from torch import Tensor


def wide(x_PNCHW: Tensor) -> Tensor:
    """Stacked images (P, N, C, H, W) in the wide layout.

    Example:
        >>> import torch
        >>> x = torch.arange(24.0).view(3, 2, 1, 2, 2)
        >>> torch.equal(stacked(wide(x), 3), x)
        True
    """
    P, N, C, H, W = x_PNCHW.shape
    return x_PNCHW.permute(1, 3, 4, 0, 2).reshape(N, H, W, P * C).permute(0, 3, 1, 2)


def stacked(h: Tensor, lanes: int) -> Tensor:
    """Activations of either layout as (P, N, ...); a view of those that are wide."""
    return torch.unflatten(h, 1, (lanes, -1)).transpose(0, 1) if is_wide(h) else h


def is_wide(h: Tensor) -> bool:
    """Whether activations are wide images; stacked vectors have three axes, and images five."""
    return h.dim() == 4


def in_layout_of(like: Tensor, found: Tensor) -> Tensor:
    """Stacked activations in the layout that others have."""
    return wide(found) if is_wide(like) and found.dim() == 5 else found
