"""Image files: folders of them, and decoding.

A folder has a folder per class: `train/<class>/*.jpg`, and `test/` or `val/` next to `train/`.
Images are decoded once into a uint8 array file that every later load maps or reads. The file is
written whole or not at all, and named by a digest of what it was made from: a changed folder is
decoded again. With `TUNEPARTS_DECODE=always`, where a disk is too small for such a file, images
are decoded each time that they are read, to the same pixels.

Shapes: N images, C = 3 colours, S side of an image.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tuneparts.core import atomic, settings
from tuneparts.core.errors import DataError
from tuneparts.data.task import Examples, StoredImages, _DataSource, _Parts

if TYPE_CHECKING:
    from tuneparts.data.config import Data

IN_MEMORY_BYTES = 2 << 30
"""Sets up to this size are held in memory; larger ones stay on disk."""
_BLOCK = 256
_FORMAT = 1
_FORMATS = ("BMP", "JPEG", "PNG", "WEBP")
"""What an image may be, whatever its name says: some decoders of Pillow run other programs."""
_MOST_PIXELS = 64_000_000
"""Of one image; more is no photograph, and a small file can claim any size."""
_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")


@dataclass(frozen=True)
class ImageFiles:
    """Image files with labels, all under one folder."""

    folder: Path
    names: Sequence[str]
    """Paths relative to the folder."""
    labels: npt.NDArray[np.int64]

    def open(self, index: int) -> IO[bytes]:
        return (self.folder / self.names[index]).open("rb")

    def fingerprint(self) -> Iterator[str]:
        """Name, size and time of change of every file; where the folder is does not matter."""
        for name in self.names:
            status = os.stat(self.folder / name)
            yield f"{name}\t{status.st_size}\t{status.st_mtime_ns}"

    def examples(self, *, image_size: int | None, title: str) -> Examples:
        """Decode images to RGB squares, uint8 (N, 3, S, S), or take them from the cache."""
        if not self.names:
            raise DataError(f"{title} holds no images.")
        digest = hashlib.sha256(f"{_FORMAT} {image_size}\n".encode())
        for line in self.fingerprint():
            digest.update(f"{line}\n".encode(errors="surrogateescape"))  # names in any encoding
        path = settings.current().cache_dir / "decoded" / f"{title}-{digest.hexdigest()[:24]}.npy"
        images = EncodedImages(self, image_size, path)
        if settings.current().decode == "always":
            return Examples(StoredImages(images), self.labels)
        try:
            stored = StoredImages(path)
            if len(stored) != len(self.names):
                raise DataError(f"{path} has {len(stored)} images")
        except DataError:  # not there, or damaged after it was written
            _write(images, title)
            stored = StoredImages(path)
        is_large = stored.nbytes > IN_MEMORY_BYTES
        return Examples(stored if is_large else stored[:], self.labels)


@dataclass(frozen=True)
class EncodedImages:
    """Image files that are decoded each time that they are read."""

    files: ImageFiles
    image_size: int | None
    path: Path
    """Where they are if they were decoded once."""

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """(N, C, H, W); of all images as of the first."""
        return (len(self.files.names), *_decode_one(self.files, 0, self.image_size).shape)

    def __getitem__(self, rows: npt.NDArray[np.int64] | slice) -> npt.NDArray[np.uint8]:
        indices = np.arange(len(self.files.names))[rows]
        images = np.empty((len(indices), *self.shape[1:]), np.uint8)
        for image, index in zip(images, indices.tolist(), strict=True):
            image[:] = self.one(index)
        return images

    def one(self, index: int) -> npt.NDArray[np.uint8]:
        image = _decode_one(self.files, index, self.image_size)
        if image.shape != self.shape[1:]:
            raise DataError(
                f"{self.files.folder / self.files.names[index]} is {image.shape[2]} x "
                f"{image.shape[1]}, the first image of the set {self.shape[3]} x {self.shape[2]}. "
                "Set `image_size`."
            )
        return image


def _write(images: EncodedImages, title: str) -> None:
    from rich.console import Console
    from rich.progress import track

    num, console = images.shape[0], Console(stderr=True)
    descr = np.lib.format.dtype_to_descr(np.dtype(np.uint8))
    header = {"descr": descr, "fortran_order": False, "shape": images.shape}
    # Plain writes, not a writable map: on a full disk they raise, where a map would crash.
    with (
        atomic.replacing(images.path, fsync=True) as file,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        np.lib.format.write_array_header_2_0(file, header)
        bar = partial(track, console=console, transient=True, disable=not console.is_terminal)
        for i in bar(range(0, num, _BLOCK), f"decoding {title}"):
            block = pool.map(images.one, range(i, min(i + _BLOCK, num)))
            file.write(np.stack(list(block)).tobytes())


def _decode_one(files: ImageFiles, index: int, image_size: int | None) -> npt.NDArray[np.uint8]:
    from PIL import Image, ImageOps

    try:
        with files.open(index) as file, Image.open(file, formats=_FORMATS) as image:
            if image.width * image.height > _MOST_PIXELS:
                raise DataError(f"{image.width} x {image.height} pixels are too many")
            rgb = image.convert("RGB")
    except Exception as error:  # Pillow's decoders raise errors of many kinds
        path = files.folder / files.names[index]
        raise DataError(f"{path} cannot be decoded: {error}. Replace or remove it.") from error
    if image_size is not None and rgb.size != (image_size, image_size):
        rgb = ImageOps.fit(rgb, (image_size, image_size), Image.Resampling.BILINEAR)
    return np.asarray(rgb).transpose(2, 0, 1)


def class_names(folder: Path) -> list[str]:
    """Names of the class folders, sorted; a class's place in the list is its label."""
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    if not names:
        raise DataError(f"{folder} must hold one folder of images per class, but has no folders.")
    return names


def list_images(folder: Path, classes: Sequence[str], *, inner: str = "") -> ImageFiles:
    """List images of all classes, sorted; `inner` is a folder between a class and its images."""
    unknown = sorted(set(class_names(folder)) - set(classes))
    if unknown:
        raise DataError(
            f"{folder} has classes that the training part lacks: {', '.join(unknown[:5])}. "
            "Name the folders of both parts alike."
        )
    found = [
        (os.path.join(name, inner, image), label)
        for label, name in enumerate(classes)
        for image in image_names(folder / name / inner)
    ]
    labels = np.array([label for _, label in found], np.int64)
    return ImageFiles(folder, [name for name, _ in found], labels)


def image_names(folder: Path) -> list[str]:
    """Names of the image files in one folder, sorted; empty if there is no such folder."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        # A pipe or a device with the name of an image would be read for ever.
        return sorted(e.name for e in entries if e.name.lower().endswith(_SUFFIXES) and e.is_file())


def find_folder(folder: Path, *, title: str, image_size: int | None = None) -> _DataSource | None:
    """Find a folder with `train/`, and `test/` or else `val/`; known sets have an `image_size`."""
    test = next((p for p in (folder / "test", folder / "val") if p.is_dir()), None)
    if not (folder / "train").is_dir() or test is None:
        return None
    classes = class_names(folder / "train")
    train_files, test_files = list_images(folder / "train", classes), list_images(test, classes)

    def read(config: "Data", _: int | None) -> _Parts:
        size = image_size or config.image_size
        return _Parts(
            train_files.examples(image_size=size, title=f"{title}-train"),
            test_files.examples(image_size=size, title=f"{title}-{test.name}"),
            len(classes),
        )

    counts = (len(train_files.names), len(test_files.names))
    shape = (3, image_size, image_size) if image_size else None
    return _DataSource(str(folder), *counts, shape, len(classes), read)
