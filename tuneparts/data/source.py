"""The interface between a reader of data sets and the table of sets: where, how large, how read."""

from collections.abc import Callable
from dataclasses import dataclass

from tuneparts.data.synthetic import InputSelection
from tuneparts.data.task import Examples


@dataclass(frozen=True)
class Request:
    """What a reader may need to know besides the place of the set; most use none of it."""

    image_size: int | None = None
    """Side of decoded images, for folders of images."""
    num_train: int = 0
    """Training and validation examples wanted, for generated sets."""
    num_test: int = 0
    seed: int = 0
    input_selection: InputSelection | None = None


@dataclass(frozen=True)
class Parts:
    """The official training and test parts of a set, before any split."""

    train: Examples
    test: Examples
    num_classes: int


@dataclass(frozen=True)
class DataSource:
    """A data set that was found in one place; its sizes are known without decoding anything."""

    where: str
    num_train: int
    num_test: int
    shape: tuple[int, ...] | None
    """(C, H, W) or (D,); None when it depends on the image size asked for."""
    num_classes: int
    read: Callable[[Request], Parts]
