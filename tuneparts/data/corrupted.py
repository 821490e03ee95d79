"""CIFAR-10-C and CIFAR-100-C: the test images under published corruptions.

Hendrycks & Dietterich (2019) publish a folder with an array for each kind of corruption: all test
images at severity 1, then all at severity 2, up to 5, as uint8 (5 N, 32, 32, 3); `labels.npy` has
the labels of such an array. Their means are over fifteen kinds; four more are for tuning.

Shapes: N images, n of them chosen, C channels, H height, W width.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tuneparts.core.errors import DataError, DataMissingError

FOLDERS = {"cifar10": "CIFAR-10-C", "cifar100": "CIFAR-100-C"}
"""By the data set whose test images they are."""
SEVERITIES = (1, 2, 3, 4, 5)
MAIN = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)
EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
Kinds = Literal["main", "all"]
_IMAGE = (32, 32, 3)


@dataclass(frozen=True)
class CorruptedTest:
    """Corrupted versions of some test images, read from disk one condition at a time.

    It pickles by path: workers on other machines read the folder at the same place.
    """

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
        """Every kind in every severity."""
        return [(kind, severity) for kind in self.kinds for severity in SEVERITIES]

    def images(self, kind: str, severity: int) -> npt.NDArray[np.uint8]:
        """The chosen images under a condition, uint8 (n, C, H, W)."""
        stored = _array(self.folder / f"{kind}.npy")
        chosen = stored[(severity - 1) * self.num_images + self.rows]
        images_NCHW = np.ascontiguousarray(chosen.transpose(0, 3, 1, 2))
        if self.pool == 1:
            return images_NCHW
        from tuneparts.data.resampling import resample  # brings torch in

        return resample(images_NCHW, degrees_N=None, pool=self.pool)


def find(name: str, kinds: Kinds, roots: Iterable[Path]) -> CorruptedTest:
    """The corrupted test images of a set, all of them; headers of all files are checked.

    Args:
        name: of the data set.
        kinds: the fifteen of published means, or all nineteen.
        roots: folders to look in; the first that has the set wins.
    """
    looked = list(roots)
    title = FOLDERS[name]
    folder = next((root / title for root in looked if (root / title).is_dir()), None)
    if folder is None:
        raise DataMissingError(
            f"{title}, the corrupted test images of `{name}`, was not found in "
            f"{', '.join(map(str, looked))}. Unpack {title}.tar (zenodo.org, Hendrycks & "
            "Dietterich 2019) in the folder TUNEPARTS_DATA, or leave `corrupted` out."
        )
    labels = np.asarray(_array(folder / "labels.npy"))
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) % len(SEVERITIES):
        raise DataError(
            f"{folder / 'labels.npy'} must hold a class for each image of {len(SEVERITIES)} equal "
            f"severities, but has {labels.dtype} {labels.shape}. Get the set again."
        )
    wanted = MAIN if kinds == "main" else (*MAIN, *EXTRA)
    for kind in wanted:
        stored = _array(folder / f"{kind}.npy")
        if stored.shape != (len(labels), *_IMAGE) or stored.dtype != np.uint8:
            raise DataError(
                f"{folder / kind}.npy must hold uint8 images {(len(labels), *_IMAGE)}, as many as "
                f"labels.npy has labels, but has {stored.dtype} {stored.shape}. Get the set again."
            )
    num = len(labels) // len(SEVERITIES)
    if not (labels.reshape(len(SEVERITIES), num) == labels[:num]).all():
        raise DataError(
            f"every severity has the same images, but the labels in {folder / 'labels.npy'} differ "
            "between them. Get the set again."
        )
    return CorruptedTest(folder, wanted, labels[:num].astype(np.int64), np.arange(num), num)


def _array(path: Path) -> npt.NDArray[Any]:
    """An array on disk; nothing but its header is read before it is indexed."""
    try:
        found: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise DataError(
            f"{path.name} is missing from {path.parent}. Unpack the whole set again."
        ) from None
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"{path} is truncated or no array of numpy: {error}. Get the set again."
        ) from error
    return found
