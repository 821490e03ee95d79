"""Images that stay on disk: rows of a uint8 array file, read through a memory map.

ImageNet decoded does not fit in memory; the pages of the map are shared by every process of a
machine, and a pickle carries the path and the rows instead of the pixels.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuneparts.errors import DataError


class StoredImages:
    """Rows of a `.npy` file of images, uint8 (N, C, H, W); indexing reads what is asked for."""

    def __init__(self, path: Path, rows: npt.NDArray[np.int64] | None = None) -> None:
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
                f"{path} must hold uint8 images (N, C, H, W), "
                f"but holds {images.dtype} {images.shape}."
            )
        self.path = path
        self._images = images.view(np.ndarray)
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
        return len(self._images) if self._rows is None else len(self._rows)

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
        return StoredImages(self.path, indices if self._rows is None else self._rows[indices])

    def joined(self, other: "StoredImages") -> "StoredImages":
        """These images, then those of `other`, of the same file; still on disk."""
        if other.path != self.path:
            raise DataError(
                f"stored images are joined within one file, but got {self.path} and {other.path}."
            )
        return StoredImages(self.path, np.concatenate([self.rows, other.rows]))

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """Which rows of the file these images are; int64 (N,)."""
        return np.arange(len(self._images)) if self._rows is None else self._rows

    def __reduce__(self) -> tuple[type["StoredImages"], tuple[Path, npt.NDArray[np.int64] | None]]:
        return StoredImages, (self.path, self._rows)
