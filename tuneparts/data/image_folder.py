"""Folders of images, a folder per class: `train/<class>/*.jpg`, and `test/` or `val/` beside it."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from tuneparts.core.errors import DataError
from tuneparts.data.decoding import decode, load_or_map
from tuneparts.data.source import DataSource, Parts, Request
from tuneparts.data.task import Examples

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")


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
        return sorted(e.name for e in entries if e.name.lower().endswith(SUFFIXES) and e.is_file())


def find(folder: Path, *, title: str, image_size: int | None = None) -> DataSource | None:
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
