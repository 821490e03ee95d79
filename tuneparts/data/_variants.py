"""Variants of image sets: rotated, shrunk, and under published corruptions.

Every rotated image has one fixed angle, uniform over the full circle, as in the rotated MNIST and
CIFAR-10 of Immer et al. (2022): bilinear, zeros outside, train and test parts alike. The angle
belongs to the image's place in the official part, whatever subset it is used in. Each draw of the
data has angles of its own.

CIFAR-10-C and CIFAR-100-C of Hendrycks & Dietterich (2019) are folders with an array for each kind
of corruption: all test images at severity 1, then all at severity 2, up to 5, as uint8
(5 N, 32, 32, 3); `labels.npy` has the labels of such an array. Published means are over fifteen
kinds; four more are for tuning.

Shapes: N images, n of them chosen, C channels, H height, W width, B images at a time.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError, DataError, DataMissingError

Part = Literal["train", "val", "test"]
_ROTATION_SEEDS: dict[Part, int] = {"train": 1, "test": 0, "val": 2}
_PIXELS_AT_A_TIME = 1 << 20


def angles(count: int, part: Part, draw: int | None = None) -> npt.NDArray[np.float64]:
    """Degrees in [-180, 180) of the first images of a part; without a `draw` fixed for ever."""
    if draw is None:
        generator = seeding.numpy_generator(_ROTATION_SEEDS[part], "data", "rotation")
    else:
        generator = seeding.numpy_generator(draw, "data", "rotation", part)
    return generator.uniform(-180.0, 180.0, count)


def resample(
    images_NCHW: npt.NDArray[np.uint8], *, degrees_N: npt.NDArray[np.float64] | None, pool: int
) -> npt.NDArray[np.uint8]:
    """Rotate each image counter-clockwise, then average `pool` x `pool` blocks; rounded once."""
    import torch
    from torch.nn import functional as F

    num, channels, height, width = images_NCHW.shape
    if height % pool or width % pool:
        raise ConfigError(f"`pool` = {pool}: must divide the image size {height} x {width}.")
    # Pixel centres relative to the image's centre, in pixels so that no side is stretched.
    v_H1 = (torch.arange(height, dtype=torch.float64) - (height - 1) / 2).view(-1, 1)
    u_1W = (torch.arange(width, dtype=torch.float64) - (width - 1) / 2).view(1, -1)
    out = np.empty((num, channels, height // pool, width // pool), np.uint8)
    step = max(1, _PIXELS_AT_A_TIME // (channels * height * width))
    for start in range(0, num, step):
        rows = slice(start, start + step)
        x_BCHW = torch.from_numpy(images_NCHW[rows].astype(np.float64))
        if degrees_N is not None:
            radians_B11 = (torch.from_numpy(degrees_N[rows]) * (math.pi / 180)).view(-1, 1, 1)
            cos, sin = torch.cos(radians_B11), torch.sin(radians_B11)
            source_u_BHW = (cos * u_1W - sin * v_H1) * (2 / width)
            source_v_BHW = (sin * u_1W + cos * v_H1) * (2 / height)
            grid_BHW2 = torch.stack([source_u_BHW, source_v_BHW], dim=-1)
            x_BCHW = F.grid_sample(x_BCHW, grid_BHW2, padding_mode="zeros", align_corners=False)
        if pool > 1:
            x_BCHW = F.avg_pool2d(x_BCHW, pool)
        out[rows] = x_BCHW.round_().clamp_(0, 255).to(torch.uint8).numpy()
    return out


CORRUPTED = {"cifar10": "CIFAR-10-C", "cifar100": "CIFAR-100-C"}
"""By the data set whose test images they are."""
SEVERITIES = (1, 2, 3, 4, 5)
MAIN = ("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur",
        "motion_blur", "zoom_blur", "snow", "frost", "fog", "brightness", "contrast",
        "elastic_transform", "pixelate", "jpeg_compression")  # fmt: skip
EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
Kinds = Literal["main", "all"]
_IMAGE = (32, 32, 3)


@dataclass(frozen=True)
class CorruptedTest:
    """Corrupted versions of some test images, read from disk; workers need the same folder."""

    folder: Path
    kinds: tuple[str, ...]
    labels: npt.NDArray[np.int64]
    """Of the chosen images (n,)."""
    rows: npt.NDArray[np.int64]
    """Places of the chosen images (n,) among the N of a severity."""
    num_images: int
    """N."""
    pool: int = 1
    """Blocks of this side are averaged, as in the images that nets were trained on."""

    @property
    def conditions(self) -> list[tuple[str, int]]:
        return [(kind, severity) for kind in self.kinds for severity in SEVERITIES]

    def images(self, kind: str, severity: int) -> npt.NDArray[np.uint8]:
        """The chosen images under a condition, uint8 (n, C, H, W)."""
        stored = _array(self.folder / f"{kind}.npy")
        chosen = stored[(severity - 1) * self.num_images + self.rows]
        images = np.ascontiguousarray(chosen.transpose(0, 3, 1, 2))
        return images if self.pool == 1 else resample(images, degrees_N=None, pool=self.pool)


def find_corrupted(name: str, kinds: Kinds, roots: Iterable[Path]) -> CorruptedTest:
    """All corrupted test images of a set, from the first root with them; headers are checked."""
    looked = list(roots)
    title = CORRUPTED[name]
    folder = next((root / title for root in looked if (root / title).is_dir()), None)
    if folder is None:
        raise DataMissingError(
            f"{title}, the corrupted test images of `{name}`, was not found in "
            f"{', '.join(map(str, looked))}. Unpack {title}.tar (zenodo.org, Hendrycks & "
            "Dietterich 2019) in the folder TUNEPARTS_DATA, or leave `corrupted` out."
        )
    labels = np.asarray(_array(folder / "labels.npy"))
    num, left = divmod(labels.size, len(SEVERITIES))
    is_row = labels.ndim == 1 and labels.dtype.kind in "iu" and not left
    if not is_row or (labels.reshape(len(SEVERITIES), num) != labels[:num]).any():
        raise DataError(
            f"{folder / 'labels.npy'} must hold the classes of all images, {len(SEVERITIES)} times "
            f"the same, but has {labels.dtype} {labels.shape}. Get the set again."
        )
    wanted = MAIN if kinds == "main" else (*MAIN, *EXTRA)
    for kind in wanted:
        stored = _array(folder / f"{kind}.npy")
        if stored.shape != (len(labels), *_IMAGE) or stored.dtype != np.uint8:
            raise DataError(
                f"{folder / kind}.npy must hold uint8 images {(len(labels), *_IMAGE)}, but has "
                f"{stored.dtype} {stored.shape}. Get the set again."
            )
    return CorruptedTest(folder, wanted, labels[:num].astype(np.int64), np.arange(num), num)


def _array(path: Path) -> npt.NDArray[Any]:
    """An array on disk; nothing but its header is read before it is indexed."""
    try:
        found: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"{path} is missing, truncated or no array of numpy: {error}. Get the set again."
        ) from error
    return found
