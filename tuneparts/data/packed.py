"""Image files packed into one archive per part: `<name>_jpeg_{train,test}.npz`.

Arrays of an archive: `jpeg` all files end to end, uint8; `offsets` where each begins, int64
(N + 1,); `labels` (N,); `classes` their names.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tuneparts.data.decoding import decode, load_or_map
from tuneparts.data.source import DataSource, Parts
from tuneparts.data.task import Examples
from tuneparts.errors import DataError


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
    labels = {part: _array(path, "labels") for part, path in paths.items()}
    num_classes = len(_array(paths["train"], "classes"))

    def examples(part: str) -> Examples:
        path = paths[part]
        offsets, data = _array(path, "offsets"), _array(path, "jpeg")
        sound = (
            len(offsets) == len(labels[part]) + 1
            and bool(np.all(np.diff(offsets) > 0))
            and offsets[0] == 0
            and offsets[-1] == len(data)
            and labels[part].max(initial=0) < num_classes
        )
        if not sound:
            raise DataError(f"{path}: offsets, labels and data do not fit together. Get it again.")
        files = PackedFiles(path, data.tobytes(), offsets)
        images = load_or_map(decode(files, image_size=image_size, title=f"{name}-{part}"))
        return Examples(images, labels[part].astype(np.int64))

    return DataSource(
        where=str(root / f"{name}_jpeg_*.npz"),
        num_train=len(labels["train"]),
        num_test=len(labels["test"]),
        shape=(3, image_size, image_size),
        num_classes=num_classes,
        read=lambda _: Parts(examples("train"), examples("test"), num_classes),
    )


def _array(path: Path, name: str) -> npt.NDArray[Any]:
    try:
        # Opened here: where the file is no archive, numpy leaves what it opened itself open.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            array: npt.NDArray[Any] = archive[name]
    except Exception as error:  # zip, zlib and numpy raise many types for hostile files
        raise DataError(
            f"{path} is truncated or not an archive of images: {error!r:.200}. Get it again."
        ) from error
    return array
