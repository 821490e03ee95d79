"""Corruptions of test images in five severities, in the manner of Hendrycks and Dietterich (2019).

Noise, blur, weather and digital kinds as whole-batch operations on the device. Strengths follow the
published ones for small images where those are plain numbers; blurs and squares are written as
fractions of the image, so that they mean the same at 8 and at 32 pixels. The images are not those
of CIFAR-C, and figures on them are comparable among themselves only.

Legend: B images, C channels, H height, W width; values in [0, 1] in and out.
"""

import math
from collections.abc import Callable, Mapping
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from tuneparts.errors import ConfigError

Kind = Literal[
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "gaussian_blur",
    "motion_blur",
    "fog",
    "brightness",
    "contrast",
    "pixelate",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
SEVERITIES = (1, 2, 3, 4, 5)


def corrupt(x_BCHW: Tensor, kind: Kind, severity: int, generator: torch.Generator) -> Tensor:
    """Corrupt images; each has draws of its own, and the shape stays.

    Args:
        x_BCHW: float images in [0, 1].
        kind: one of `KINDS`.
        severity: 1 to 5.
        generator: source of all draws, on the device of the images.

    Example:
        >>> images = torch.full((2, 1, 8, 8), 0.5)
        >>> foggy = corrupt(images, "fog", 3, torch.Generator().manual_seed(0))
        >>> foggy.shape
        torch.Size([2, 1, 8, 8])
    """
    if severity not in SEVERITIES:
        raise ConfigError(f"`1 <= severity <= 5` must hold, but got {severity}.")
    act, strengths = _TABLE[kind]
    return act(x_BCHW, strengths[severity - 1], generator).clamp(0, 1)


def _gaussian_noise(x_BCHW: Tensor, sigma: float, generator: torch.Generator) -> Tensor:
    return x_BCHW + sigma * _normal(x_BCHW, generator)


def _shot_noise(x_BCHW: Tensor, photons: float, generator: torch.Generator) -> Tensor:
    """Counts of photons when full brightness means `photons` of them."""
    return torch.poisson(x_BCHW * photons, generator=generator) / photons


def _impulse_noise(x_BCHW: Tensor, fraction: float, generator: torch.Generator) -> Tensor:
    """Salt and pepper on this fraction of all values."""
    draw = torch.rand(x_BCHW.shape, generator=generator, device=x_BCHW.device)
    salted = torch.where(draw < fraction / 2, torch.ones_like(x_BCHW), x_BCHW)
    return torch.where(draw > 1 - fraction / 2, torch.zeros_like(x_BCHW), salted)


def _gaussian_blur(x_BCHW: Tensor, sigma: float, _: torch.Generator) -> Tensor:
    """A Gaussian of this standard deviation, as a fraction of the image's height."""
    sigma_pixels = sigma * x_BCHW.shape[2]
    radius = math.ceil(3 * sigma_pixels)
    offset = torch.arange(-radius, radius + 1, dtype=x_BCHW.dtype, device=x_BCHW.device)
    kernel = torch.exp(-0.5 * (offset / sigma_pixels).square())
    kernel = kernel / kernel.sum()
    return _filtered(_filtered(x_BCHW, kernel.view(1, 1, -1, 1)), kernel.view(1, 1, 1, -1))


def _motion_blur(x_BCHW: Tensor, length: float, generator: torch.Generator) -> Tensor:
    """The mean of each image along a line of its own direction, `length` of the image long."""
    B = len(x_BCHW)
    angle_B = math.pi * torch.rand(B, generator=generator, device=x_BCHW.device)
    direction_B2 = torch.stack([angle_B.cos(), angle_B.sin()], dim=1).to(x_BCHW.dtype)
    eye = torch.eye(2, dtype=x_BCHW.dtype, device=x_BCHW.device).expand(B, 2, 2)
    num_steps = 2 * math.ceil(length * max(x_BCHW.shape[2:])) + 1
    total = torch.zeros_like(x_BCHW)
    for step in torch.linspace(-length, length, num_steps).tolist():
        motion_B23 = torch.cat([eye, step * direction_B2[:, :, None]], dim=2)
        grid = F.affine_grid(motion_B23, list(x_BCHW.shape), align_corners=False)
        total += F.grid_sample(x_BCHW, grid, padding_mode="border", align_corners=False)
    return total / num_steps


def _fog(x_BCHW: Tensor, thickness: float, generator: torch.Generator) -> Tensor:
    """A smooth bright field over the image: random values on grids of 2, 4 and 8, halved each."""
    B, _, H, W = x_BCHW.shape
    field = x_BCHW.new_zeros(B, 1, H, W)
    for octave, side in enumerate((2, 4, 8)):
        coarse = torch.rand(B, 1, side, side, generator=generator, device=x_BCHW.device)
        smooth = F.interpolate(coarse.to(x_BCHW.dtype), (H, W), mode="bilinear", align_corners=True)
        field = field + smooth / 2**octave
    field = thickness * field / 1.75
    peak = x_BCHW.amax(dim=(1, 2, 3), keepdim=True)
    return (x_BCHW + field) * peak / (peak + thickness)


def _brightness(x_BCHW: Tensor, shift: float, _: torch.Generator) -> Tensor:
    return x_BCHW + shift


def _contrast(x_BCHW: Tensor, factor: float, _: torch.Generator) -> Tensor:
    """Towards the mean of each channel."""
    mean = x_BCHW.mean(dim=(2, 3), keepdim=True)
    return (x_BCHW - mean) * factor + mean


def _pixelate(x_BCHW: Tensor, strength: float, _: torch.Generator) -> Tensor:
    """Mixed with its own averages over squares of an eighth of the image, at least 2 pixels.

    Squares of other than whole pixels would shift the image more than they coarsen it.
    """
    H, W = x_BCHW.shape[2:]
    side = max(2, H // 8)
    means = F.avg_pool2d(x_BCHW, side, ceil_mode=True)
    squares = means.repeat_interleave(side, dim=2).repeat_interleave(side, dim=3)[..., :H, :W]
    return torch.lerp(x_BCHW, squares, strength)


def _filtered(x_BCHW: Tensor, kernel: Tensor) -> Tensor:
    """Each channel filtered by a kernel (1, 1, h, w), borders repeated."""
    B, C, H, W = x_BCHW.shape
    tall, wide = kernel.shape[2] // 2, kernel.shape[3] // 2
    flat = F.pad(x_BCHW.reshape(B * C, 1, H, W), (wide, wide, tall, tall), mode="replicate")
    return F.conv2d(flat, kernel).reshape(B, C, H, W)


def _normal(x_BCHW: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(x_BCHW.shape, generator=generator, device=x_BCHW.device, dtype=x_BCHW.dtype)


_Act = Callable[[Tensor, float, torch.Generator], Tensor]
_TABLE: Mapping[Kind, tuple[_Act, tuple[float, float, float, float, float]]] = {
    "gaussian_noise": (_gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10)),
    "shot_noise": (_shot_noise, (500, 250, 100, 75, 50)),
    "impulse_noise": (_impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07)),
    "gaussian_blur": (_gaussian_blur, (0.0125, 0.019, 0.025, 0.031, 0.047)),
    "motion_blur": (_motion_blur, (0.06, 0.09, 0.12, 0.15, 0.19)),
    "fog": (_fog, (0.2, 0.5, 0.75, 1.0, 1.5)),
    "brightness": (_brightness, (0.05, 0.1, 0.15, 0.2, 0.3)),
    "contrast": (_contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "pixelate": (_pixelate, (0.2, 0.4, 0.6, 0.8, 1.0)),
}
"""What each kind does, and how strongly at each severity."""
