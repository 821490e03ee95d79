"""The interface between a reader of data sets and the table of sets: where, how large, how read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuneparts.data.synthetic import InputSelection
from tuneparts.data.target import Classes, Target
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
    is_drawn: bool = False
    """Whether this is the draw of one replicate, whose seed may choose what is usually fixed."""
    input_selection: InputSelection | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """For a function of one's own."""
    target: Target = field(default_factory=Classes)
    """For data of one's own, which is checked against it."""
    roots: tuple[Path, ...] = ()
    """Where relative paths of one's own start."""


@dataclass(frozen=True)
class Parts:
    """The official parts of a set, before any split."""

    train: Examples
    test: Examples | None
    """None where it is to be split off the training part."""
    num_classes: int
    """0 where labels are no classes."""
    val: Examples | None = None
    """None where it is to be split off the training part, as in all of our own sets."""


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
