"""Image files: folders of them, and decoding.

A folder has a folder per class: `train/<class>/*.jpg`, and `test/` or `val/` beside `train/`.
Images are decoded once into a uint8 array file that every later load maps or reads. The file is
written whole or not at all, and named by a digest of what it was made from: a changed folder
is decoded again. With `TUNEPARTS_DECODE=always`, where a disk is too small for such a file, images
are decoded each time that they are read, to the same pixels.

Shapes: N images, C = 3 colours, S side of an image.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Protocol

import numpy as np
import numpy.typing as npt

from tuneparts.core import atomic, settings
from tuneparts.core.errors import DataError
from tuneparts.data.source import DataSource, Parts, Request
from tuneparts.data.task import Examples, StoredImages

IN_MEMORY_BYTES = 2 << 30
"""Sets up to this size are held in memory; larger ones stay on disk."""
_BLOCK = 256
_FORMAT = 1
_FORMATS = ("BMP", "JPEG", "PNG", "WEBP")
"""What an image may be, whatever its name says: some decoders of Pillow run other programs."""
_MOST_PIXELS = 64_000_000
"""Of one image; more is no photograph, and a small file can claim any size."""


class Encoded(Protocol):
    """A sequence of image files: in a folder, or inside an archive."""

    def __len__(self) -> int: ...

    def name(self, index: int) -> str:
        """The image's file, for error messages."""
        ...

    def open(self, index: int) -> IO[bytes]:
        """Open one image file."""
        ...

    def fingerprint(self) -> Iterator[str]:
        """Text that changes whenever the images may have changed."""
        ...


def decode(encoded: Encoded, *, image_size: int | None, title: str) -> StoredImages:
    """Decode images to RGB, uint8 (N, 3, S, S), or take them from the cache.

    An image of another size is scaled so that its shorter side is `image_size`, and its centre is
    kept.

    Args:
        encoded: the image files.
        image_size: side S of the result; None when all images are squares of one size.
        title: what the progress bar and the cached file are called.
    """
    if len(encoded) == 0:
        raise DataError(f"{title} holds no images.")
    digest = hashlib.sha256(f"{_FORMAT} {image_size}\n".encode())
    for line in encoded.fingerprint():
        digest.update(f"{line}\n".encode(errors="surrogateescape"))  # names in any encoding
    path = settings.current().cache_dir / "decoded" / f"{title}-{digest.hexdigest()[:24]}.npy"
    if settings.current().decodes_always:
        return StoredImages(EncodedImages(encoded, image_size, path))
    if path.exists():
        try:
            stored = StoredImages(path)
            if len(stored) == len(encoded):
                return stored
        except DataError:
            pass  # damaged after it was written: decoded again below
    _write(encoded, path, image_size=image_size, title=title)
    return StoredImages(path)


def load_or_map(stored: StoredImages) -> npt.NDArray[np.uint8] | StoredImages:
    """Read the images into memory; images too large for that stay on disk."""
    stays = stored.nbytes > IN_MEMORY_BYTES or settings.current().decodes_always
    return stored if stays else stored[:]


@dataclass(frozen=True)
class EncodedImages:
    """Image files that are decoded each time that they are read."""

    encoded: Encoded
    image_size: int | None
    path: Path
    """Where they would lie if they were decoded once."""

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """(N, C, H, W); of all images as of the first."""
        return (len(self.encoded), *_decode_one(self.encoded, 0, self.image_size).shape)

    def __getitem__(self, rows: npt.NDArray[np.int64] | slice) -> npt.NDArray[np.uint8]:
        indices = np.arange(len(self.encoded))[rows]
        images = np.empty((len(indices), *self.shape[1:]), np.uint8)
        for image, index in zip(images, indices.tolist(), strict=True):
            image[:] = self._checked(index)
        return images

    def _checked(self, index: int) -> npt.NDArray[np.uint8]:
        image = _decode_one(self.encoded, index, self.image_size)
        _check_size(self.encoded, index, image.shape, self.shape[1:])
        return image


def _write(encoded: Encoded, path: Path, *, image_size: int | None, title: str) -> None:
    first = _decode_one(encoded, 0, image_size)
    header = {
        "descr": np.lib.format.dtype_to_descr(first.dtype),
        "fortran_order": False,
        "shape": (len(encoded), *first.shape),
    }

    def image(index: int) -> npt.NDArray[np.uint8]:
        array = _decode_one(encoded, index, image_size)
        _check_size(encoded, index, array.shape, first.shape)
        return array

    # Plain writes, not a writable map: on a full disk they raise, where a map would crash.
    with (
        atomic.replacing(path, fsync=True) as file,
        ThreadPoolExecutor(os.cpu_count()) as pool,
        _progress(title, len(encoded)) as bar,
    ):
        np.lib.format.write_array_header_2_0(file, header)
        for start in range(0, len(encoded), _BLOCK):
            indices = range(start, min(start + _BLOCK, len(encoded)))
            file.write(np.stack(list(pool.map(image, indices))).tobytes())
            bar(len(indices))


def _check_size(
    encoded: Encoded, index: int, shape: tuple[int, ...], first: tuple[int, ...]
) -> None:
    if shape != first:
        raise DataError(
            f"images of one set must have one size, but {encoded.name(index)} is "
            f"{shape[2]} x {shape[1]} and {encoded.name(0)} is {first[2]} x {first[1]}. Set "
            "`image_size`."
        )


def _decode_one(encoded: Encoded, index: int, image_size: int | None) -> npt.NDArray[np.uint8]:
    from PIL import Image, ImageOps

    try:
        with encoded.open(index) as file, Image.open(file, formats=_FORMATS) as image:
            if image.width * image.height > _MOST_PIXELS:
                raise DataError(f"{image.width} x {image.height} pixels are too many")
            rgb = image.convert("RGB")
    except Exception as error:  # Pillow's decoders raise errors of many kinds
        raise DataError(
            f"{encoded.name(index)} cannot be decoded: {error}. Replace or remove it."
        ) from error
    if image_size is not None and rgb.size != (image_size, image_size):
        rgb = ImageOps.fit(rgb, (image_size, image_size), Image.Resampling.BILINEAR)
    return np.asarray(rgb).transpose(2, 0, 1)


@contextmanager
def _progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"decoding {title}", total=total)
        yield lambda count: progress.advance(task, count)


_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")


@dataclass(frozen=True)
class ImageFiles:
    """Image files with labels, all under one folder."""

    folder: Path
    names: Sequence[str]
    """Paths relative to the folder."""
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.names)

    def name(self, index: int) -> str:
        """The path of one file."""
        return str(self.folder / self.names[index])

    def open(self, index: int) -> IO[bytes]:
        """Open one file."""
        return (self.folder / self.names[index]).open("rb")

    def fingerprint(self) -> Iterator[str]:
        """Name, size and time of change of every file; where the folder lies does not matter."""
        for name in self.names:
            status = os.stat(self.folder / name)
            yield f"{name}\t{status.st_size}\t{status.st_mtime_ns}"

    def examples(self, *, image_size: int | None, title: str) -> Examples:
        """Decode the images, or take them from the cache, and pair them with their labels."""
        images = load_or_map(decode(self, image_size=image_size, title=title))
        return Examples(images, self.labels)


def class_names(folder: Path) -> list[str]:
    """Names of the class folders, sorted; a class's place in the list is its label."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir())
    if not names:
        raise DataError(f"{folder} must hold one folder of images per class, but has no folders.")
    return names


def list_images(folder: Path, classes: Sequence[str], *, inner: str = "") -> ImageFiles:
    """List the images of every class, sorted by class and name.

    Args:
        folder: holds the class folders.
        classes: the known classes in the order of their labels; any other folder is refused.
        inner: folder between a class and its images.
    """
    unknown = sorted(set(class_names(folder)) - set(classes))
    if unknown:
        raise DataError(
            f"{folder} has classes that the training part lacks: {', '.join(unknown[:5])}. "
            "Name the folders of both parts alike."
        )
    names: list[str] = []
    counts = []
    for name in classes:
        images = image_names(folder / name / inner)
        names += [os.path.join(name, inner, image) for image in images]
        counts.append(len(images))
    return ImageFiles(folder, names, np.repeat(np.arange(len(classes)), counts))


def image_names(folder: Path) -> list[str]:
    """Names of the image files in one folder, sorted; empty if there is no such folder."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        # A pipe or a device with the name of an image would be read for ever.
        return sorted(e.name for e in entries if e.name.lower().endswith(_SUFFIXES) and e.is_file())


def find_folder(folder: Path, *, title: str, image_size: int | None = None) -> DataSource | None:
    """Find an image folder that has `train/`, and `test/` or else `val/`; None if it has not.

    Args:
        folder: the folder that holds both parts.
        title: what the set is called while it is decoded.
        image_size: size of the images of a known set; None leaves it to the request.
    """
    train = folder / "train"
    test = next((p for p in (folder / "test", folder / "val") if p.is_dir()), None)
    if not train.is_dir() or test is None:
        return None
    classes = class_names(train)
    train_files, test_files = list_images(train, classes), list_images(test, classes)

    def read(request: Request) -> Parts:
        size = image_size or request.image_size
        return Parts(
            train=train_files.examples(image_size=size, title=f"{title}-train"),
            test=test_files.examples(image_size=size, title=f"{title}-{test.name}"),
            num_classes=len(classes),
        )

    return DataSource(
        where=str(folder),
        num_train=len(train_files),
        num_test=len(test_files),
        shape=(3, image_size, image_size) if image_size else None,
        num_classes=len(classes),
        read=read,
    )
