"""A data set that was found: where it lies, how large it is, and how to read it."""

from collections.abc import Callable
from dataclasses import dataclass

from tuneparts.data.synthetic import InputSelection
from tuneparts.data.task import Examples


@dataclass(frozen=True)
class Request:
    """What reading a set may depend on; most sets use none of it."""

    image_size: int | None = None
    """Side of decoded images, for folders of images."""
    num_train: int = 0
    """Training and validation examples wanted, for generated sets."""
    num_test: int = 0
    seed: int = 0
    input_selection: InputSelection | None = None


@dataclass(frozen=True)
class Parts:
    """The official parts of a set, whole, before any split."""

    train: Examples
    test: Examples
    num_classes: int


@dataclass(frozen=True)
class DataSource:
    """One set in one place; the sizes are known without decoding anything."""

    where: str
    num_train: int
    num_test: int
    shape: tuple[int, ...] | None
    """(C, H, W) or (D,); None when it depends on the image size asked for."""
    num_classes: int
    read: Callable[[Request], Parts]
