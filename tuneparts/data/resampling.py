"""Rotated and shrunk variants of image sets, made once when a set is loaded.

Every image has one fixed angle, uniform over the full circle, as in the rotated MNIST and CIFAR-10
of Immer et al. (2022): bilinear, zeros outside, train and test parts alike. The angle belongs to
the image's place in the official part, whatever subset it is used in. Each draw of the data has
angles of its own.

Shapes: N images, C channels, H height, W width, B images at a time.
"""

import math
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError

ROTATION_SEEDS: dict[str, int] = {"train": 1, "test": 0, "val": 2}
_PIXELS_AT_A_TIME = 1 << 20


def angles(
    count: int, part: Literal["train", "val", "test"], draw: int | None = None
) -> npt.NDArray[np.float64]:
    """Degrees in [-180, 180) of the first `count` images of an official part; (count,).

    Args:
        count: images of the part.
        part: each has a stream of its own.
        draw: seed of a replicate; None for the angles that are fixed for ever.
    """
    generator = (
        seeding.numpy_generator(ROTATION_SEEDS[part], "data", "rotation")
        if draw is None
        else seeding.numpy_generator(draw, "data", "rotation", part)
    )
    return generator.uniform(-180.0, 180.0, count)


def resample(
    images_NCHW: npt.NDArray[np.uint8],
    *,
    degrees_N: npt.NDArray[np.float64] | None,
    pool: int,
) -> npt.NDArray[np.uint8]:
    """Rotate each image counter-clockwise about its centre, then average `pool` x `pool` blocks.

    Values are rounded to uint8 once, at the end.

    Args:
        images_NCHW: uint8 images.
        degrees_N: an angle per image; None rotates nothing.
        pool: side of the blocks; divides H and W.
    """
    num, channels, height, width = images_NCHW.shape
    if height % pool or width % pool:
        raise ConfigError(
            f"`pool` must divide the image size, but got {pool} for {height} x {width}."
        )
    out = np.empty((num, channels, height // pool, width // pool), np.uint8)
    step = max(1, _PIXELS_AT_A_TIME // (channels * height * width))
    for start in range(0, num, step):
        rows = slice(start, start + step)
        x_BCHW = torch.from_numpy(images_NCHW[rows].astype(np.float64))
        if degrees_N is not None:
            x_BCHW = _rotate(x_BCHW, torch.from_numpy(degrees_N[rows]))
        if pool > 1:
            x_BCHW = F.avg_pool2d(x_BCHW, pool)
        out[rows] = x_BCHW.round_().clamp_(0, 255).to(torch.uint8).numpy()
    return out


def _rotate(x_BCHW: torch.Tensor, degrees_B: torch.Tensor) -> torch.Tensor:
    height, width = x_BCHW.shape[-2:]
    radians_B11 = (degrees_B * (math.pi / 180)).view(-1, 1, 1)
    # Pixel centres relative to the image's centre, in pixels so that no side is stretched.
    v_H1 = (torch.arange(height, dtype=torch.float64) - (height - 1) / 2).view(-1, 1)
    u_1W = (torch.arange(width, dtype=torch.float64) - (width - 1) / 2).view(1, -1)
    cos, sin = torch.cos(radians_B11), torch.sin(radians_B11)
    source_u_BHW = cos * u_1W - sin * v_H1
    source_v_BHW = sin * u_1W + cos * v_H1
    grid_BHW2 = torch.stack([source_u_BHW * (2 / width), source_v_BHW * (2 / height)], dim=-1)
    return F.grid_sample(
        x_BCHW, grid_BHW2, mode="bilinear", padding_mode="zeros", align_corners=False
    )
