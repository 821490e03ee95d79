"""Changes of whole batches of images on their device: random crops, flip and cutout.

Every image of the batch has a draw of its own; there is no loop over images.

Legend: B images, C channels, H height, W width.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional


def random_resized_crop(x_BCHW: Tensor, least: float, generator: torch.Generator) -> Tensor:
    """Crop each image to a rectangle of random area, shape and place, scaled to the old size.

    The area is uniform between `least` and all of the image's, the logarithm of width by height
    between those of 3/4 and 4/3; what would not fit the image is cut to its side. Bilinear.
    """
    B, _, H, W = x_BCHW.shape
    draws = torch.rand((4, B, 1), generator=generator, device=x_BCHW.device)
    area = (least + (1 - least) * draws[0]) * H * W
    ratio = torch.exp((2 * draws[1] - 1) * math.log(4 / 3))
    height, width = (area / ratio).sqrt().clamp(max=H), (area * ratio).sqrt().clamp(max=W)

    def places(size: int, length_B1: Tensor, draw_B1: Tensor) -> Tensor:
        """Where the pixels of a side are read, (B, size), in units of `grid_sample`."""
        centres = (torch.arange(size, device=x_BCHW.device) + 0.5) / size
        return (draw_B1 * (size - length_B1) + centres * length_B1) * (2 / size) - 1

    rows, columns = places(H, height, draws[2]), places(W, width, draws[3])
    grid = torch.stack(
        [columns[:, None, :].expand(B, H, W), rows[:, :, None].expand(B, H, W)], dim=-1
    )
    return functional.grid_sample(
        x_BCHW, grid.to(x_BCHW.dtype), mode="bilinear", padding_mode="border", align_corners=False
    )


def random_crop(x_BCHW: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """Shift each image by up to `padding` pixels along each axis, zeros moving in."""
    B, _, H, W = x_BCHW.shape
    padded = functional.pad(x_BCHW, [padding] * 4)
    windows = padded.unfold(2, H, 1).unfold(3, W, 1)
    top, left = _integers(2 * padding + 1, (2, B), generator, like=x_BCHW)
    return windows[torch.arange(B, device=x_BCHW.device), :, top, left]


def random_flip(x_BCHW: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror each image left and right with probability one half."""
    is_flipped = _integers(2, (len(x_BCHW), 1, 1, 1), generator, like=x_BCHW) == 1
    return torch.where(is_flipped, x_BCHW.flip(3), x_BCHW)


def cutout(x_BCHW: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Zero a square around a random pixel of each image (DeVries and Taylor 2017).

    The pixel is anywhere in the image, so that squares may be cut off at the border.
    """
    B, _, H, W = x_BCHW.shape
    in_rows, in_columns = (
        _is_within(size, _integers(size, (B,), generator, like=x_BCHW), side) for size in (H, W)
    )
    return x_BCHW.masked_fill((in_rows[:, :, None] & in_columns[:, None, :])[:, None], 0)


def _is_within(size: int, centre_B: Tensor, side: int) -> Tensor:
    """Whether each of `size` positions lies in [centre - side // 2, ... + side), (B, size)."""
    offset = torch.arange(size, device=centre_B.device) - centre_B[:, None] + side // 2
    return (offset >= 0) & (offset < side)


def _integers(
    high: int, shape: tuple[int, ...], generator: torch.Generator, *, like: Tensor
) -> Tensor:
    return torch.randint(high, shape, generator=generator, device=like.device)
