"""Image files packed into one archive per part: `<name>_jpeg_{train,test}.npz`.

Arrays of an archive: `jpeg` all files end to end, uint8; `offsets` where each begins, int64
(N + 1,); `labels` (N,); `classes` their names.
"""

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tuneparts.core.errors import DataError
from tuneparts.data.decoding import decode, load_or_map
from tuneparts.data.source import DataSource, Parts
from tuneparts.data.task import Examples

_MOST_UNPACKED = 64
"""How many times its size on disk an array may have; labels in order shrink well, images do not."""


@dataclass(frozen=True)
class PackedFiles:
    """The image files of one archive."""

    path: Path
    data: bytes
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def name(self, index: int) -> str:
        """The archive, and the number of one image in it."""
        return f"{self.path} (image {index})"

    def open(self, index: int) -> IO[bytes]:
        """Open one file of the archive."""
        return io.BytesIO(self.data[self.offsets[index] : self.offsets[index + 1]])

    def fingerprint(self) -> Iterator[str]:
        """Name, size and time of change of the archive."""
        status = self.path.stat()
        yield f"{self.path.name}\t{status.st_size}\t{status.st_mtime_ns}"


def find(root: Path, *, name: str, image_size: int) -> DataSource | None:
    """Find the packed set `name` under `root`; None unless the archives of both parts are there."""
    paths = {part: root / f"{name}_jpeg_{part}.npz" for part in ("train", "test")}
    if not all(path.exists() for path in paths.values()):
        return None
    counts = {part: _length(path, "labels") for part, path in paths.items()}
    num_classes = _length(paths["train"], "classes")

    def examples(part: str) -> Examples:
        path = paths[part]
        labels, offsets, data = (_array(path, name) for name in ("labels", "offsets", "jpeg"))
        sound = (
            len(offsets) == len(labels) + 1
            and bool(np.all(np.diff(offsets) > 0))
            and offsets[0] == 0
            and offsets[-1] == len(data)
            and labels.min(initial=0) >= 0
            and labels.max(initial=0) < num_classes
        )
        if not sound:
            raise DataError(f"{path}: offsets, labels and data do not fit together. Get it again.")
        files = PackedFiles(path, data.tobytes(), offsets)
        images = load_or_map(decode(files, image_size=image_size, title=f"{name}-{part}"))
        return Examples(images, labels.astype(np.int64))

    return DataSource(
        where=str(root / f"{name}_jpeg_*.npz"),
        num_train=counts["train"],
        num_test=counts["test"],
        shape=(3, image_size, image_size),
        num_classes=num_classes,
        read=lambda _: Parts(examples("train"), examples("test"), num_classes),
    )


def _length(path: Path, name: str) -> int:
    """How long an array is, from its header; the array itself is not read."""
    with _archive(path) as archive:
        return _shape(path, archive, name)[0]


def _array(path: Path, name: str) -> npt.NDArray[Any]:
    with _archive(path) as archive:
        _shape(path, archive, name)
        with archive.open(f"{name}.npy") as file:
            array: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            yield archive
    except DataError:
        raise
    except Exception as error:  # zip, zlib and numpy raise many types for hostile files
        raise DataError(
            f"{path} is truncated or not an archive of images: {error!r:.200}. Get it again."
        ) from error


def _shape(path: Path, archive: zipfile.ZipFile, name: str) -> tuple[int, ...]:
    """The shape of an array, after checking that memory is asked for only what the file can hold.

    Raises:
        DataError: The array is not a row of numbers or names, or would be larger than any archive
            of images that is as small as this one.
    """
    size = archive.getinfo(f"{name}.npy").file_size
    with archive.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0
        shape, _, dtype = (read if version == (1, 0) else np.lib.format.read_array_header_2_0)(file)
        begin = file.tell()
    is_row = len(shape) == 1 and dtype.kind in ("U" if name == "classes" else "iu")
    if not is_row or begin + shape[0] * dtype.itemsize != size:
        raise DataError(
            f"{path}: `{name}` is not a row of {'names' if name == 'classes' else 'whole numbers'} "
            f"that is as long as its header says ({dtype} {shape}, {size} bytes). Get it again."
        )
    most = _MOST_UNPACKED * path.stat().st_size
    if size > most:
        raise DataError(
            f"images are packed already, so arrays of {path} have at most {most:,} bytes, but "
            f"`{name}` would have {size:,}. Get it again."
        )
    return shape
