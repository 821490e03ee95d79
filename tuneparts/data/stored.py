"""Images that stay on disk: rows of a uint8 array file, or image files that are decoded when read.

ImageNet decoded does not fit in memory. An array file is read through a memory map, whose pages are
shared by every process of a machine. A pickle carries paths and rows instead of pixels.
"""

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tuneparts.core.errors import DataError


class ImageSource(Protocol):
    """Images, uint8 (N, C, H, W), that are read when they are indexed."""

    @property
    def path(self) -> Path:
        """Its name is a digest of the images."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, C, H, W)."""
        ...

    def __getitem__(self, rows: npt.NDArray[np.int64] | slice) -> npt.NDArray[np.uint8]: ...


class StoredImages:
    """Rows of images on disk, uint8 (N, C, H, W); indexing reads what is asked for.

    Args:
        source: a `.npy` file, or what else images are read from.
        rows: which images of it, int64; None for all.
    """

    def __init__(
        self, source: Path | ImageSource, rows: npt.NDArray[np.int64] | None = None
    ) -> None:
        self._source = source
        self.path = source if isinstance(source, Path) else source.path
        self._images = _mapped(source) if isinstance(source, Path) else source
        self._rows = rows

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, C, H, W) of the chosen rows."""
        return (len(self), *self._images.shape[1:])

    @property
    def dtype(self) -> np.dtype[np.uint8]:
        """Always uint8."""
        return np.dtype(np.uint8)

    @property
    def nbytes(self) -> int:
        """Bytes that the chosen rows would take in memory."""
        return int(np.prod(self.shape, dtype=np.int64))

    def __len__(self) -> int:
        return self._images.shape[0] if self._rows is None else len(self._rows)

    def __getitem__(self, indices: npt.NDArray[np.int64] | slice) -> npt.NDArray[np.uint8]:
        rows = indices if self._rows is None else self._rows[indices]
        return np.array(self._images[rows])

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("stored images cannot become an array without a copy.")
        return self[:].astype(dtype or np.uint8, copy=False)

    def select(self, indices: npt.NDArray[np.int64]) -> "StoredImages":
        """The images at these indices, still on disk."""
        return StoredImages(self._source, indices if self._rows is None else self._rows[indices])

    def joined(self, other: "StoredImages") -> "StoredImages":
        """These images, then those of `other`, of the same file; still on disk."""
        if other.path != self.path:
            raise DataError(
                f"stored images are joined within one file, but got {self.path} and {other.path}."
            )
        return StoredImages(self._source, np.concatenate([self.rows, other.rows]))

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """Which rows of the file these images are; int64 (N,)."""
        return np.arange(self._images.shape[0]) if self._rows is None else self._rows

    def __reduce__(self) -> tuple[type["StoredImages"], tuple[Any, ...]]:
        return StoredImages, (self._source, self._rows)


def _mapped(path: Path) -> npt.NDArray[np.uint8]:
    try:
        # Not np.load, which also opens archives: a cache is one array.
        images: npt.NDArray[np.uint8] = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # numpy raises many types for hostile headers
        raise DataError(
            f"{path} cannot be mapped as an array of images: {error!r:.200}. "
            "Delete it; it is decoded again at the next load."
        ) from error
    if images.dtype != np.uint8 or images.ndim != 4:
        raise DataError(
            f"{path} must hold uint8 images (N, C, H, W), but holds {images.dtype} {images.shape}."
        )
    return images.view(np.ndarray)
