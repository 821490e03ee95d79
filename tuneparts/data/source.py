"""What a reader of a data set gives, and the sets that need no file: digits, and generated ones.

The digits of scikit-learn are 1,797 grey images of 8 x 8 in ten classes, without an official split;
500 images, stratified, are its test part: those of a replicate's own draw, or where the data is
fixed, the same ones for ever. A larger request extends a generated set: its first examples stay.

Shapes: N examples, D features, S side of an image.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from pydantic import Field, model_validator

from tuneparts.core import seeding, settings
from tuneparts.core.config import Config
from tuneparts.data.chunks import stratified_order
from tuneparts.data.task import Examples

if TYPE_CHECKING:
    from tuneparts.data.config import DataConfig

_SIDE = 8
_BLOB_DIMENSIONS = 8
_NUM_DIGITS_TEST = 500


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
    num_train: int | None
    num_test: int | None
    shape: tuple[int, ...] | None
    """(C, H, W) or (D,); None when it depends on the image size asked for."""
    num_classes: int | None
    read: "Callable[[DataConfig, int | None], Parts]"
    """Takes the seed of a replicate that draws its own data; None for the fixed draw."""


def roots(override: str | None = None) -> list[Path]:
    """Folders in which sets are looked for, in order; an override replaces them all."""
    if override is not None:
        return [Path(override).expanduser().absolute()]
    data_dir = settings.current().data_dir
    return [*([data_dir] if data_dir else []), download_dir()]


def download_dir() -> Path:
    """Where downloads go: never into `TUNEPARTS_DATA`, which may be shared and read-only."""
    return settings.current().cache_dir / "downloads"


class InputSelection(Config):
    """Vectors of which some inputs are the label plus noise, and the others noise alone.

    After the input-selection experiment of Lyle et al. (2020) and Mlodozeniec et al. (2023). The
    sizes 3,000 and 1,000 are theirs; the generator and its defaults are a reconstruction.
    """

    num_informative: int = Field(default=15, ge=1)
    """Inputs `y + noise * N(0, 1)`; they come first."""
    num_spurious: int = Field(default=15, ge=0)
    """Inputs `N(0, 1)` that know nothing of the label."""
    noise: float = Field(default=1.0, ge=0)
    """Standard deviation of the noise on informative inputs."""
    num_inputs: int | None = Field(default=None, ge=1)
    """Keep only the first inputs; None keeps all."""

    @model_validator(mode="after")
    def _check_num_inputs(self) -> Self:
        num_all = self.num_informative + self.num_spurious
        if self.num_inputs is not None and self.num_inputs > num_all:
            raise ValueError(f"`num_inputs` = {self.num_inputs}: there are only {num_all}.")
        return self

    def draw(self, count: int, *, seed: int, part: str) -> Examples:
        """Draw examples of two classes with labels that are fair coins; float32 (N, D).

        The noise of an input does not depend on how many inputs are kept, so that sets that
        differ in `num_inputs` alone share their columns.
        """
        num, num_all = self.num_informative, self.num_informative + self.num_spurious
        labels = _stream(seed, "input_selection", part, "labels").integers(0, 2, count)
        normal = _stream(seed, "input_selection", part, "noise").standard_normal((count, num_all))
        normal[:, :num] = labels[:, None] + self.noise * normal[:, :num]
        kept = normal[:, : self.num_inputs]
        return Examples(kept.astype(np.float32), labels.astype(np.int64))


def blobs(count: int, *, seed: int, part: str) -> Examples:
    """Draw from three Gaussian clouds around the first unit vectors times three; float32 (N, 8)."""
    labels = _stream(seed, "blobs", part, "labels").integers(0, 3, count)
    noise = _stream(seed, "blobs", part, "noise").standard_normal((count, _BLOB_DIMENSIONS))
    centres = 3 * np.eye(3, _BLOB_DIMENSIONS)
    return Examples((centres[labels] + noise).astype(np.float32), labels.astype(np.int64))


def stripes(count: int, *, seed: int, part: str) -> Examples:
    """Draw noisy stripes in four directions with random phase; uint8 (N, 1, 8, 8)."""
    labels = _stream(seed, "stripes", part, "labels").integers(0, 4, count)
    phases = _stream(seed, "stripes", part, "phases").uniform(0, 2 * np.pi, count)
    noise = _stream(seed, "stripes", part, "noise").standard_normal((count, _SIDE, _SIDE))
    direction = labels * (np.pi / 4)
    y, x = np.mgrid[:_SIDE, :_SIDE] * (2 * np.pi / 4)
    along_NSS = np.cos(direction)[:, None, None] * x + np.sin(direction)[:, None, None] * y
    wave_NSS = np.sin(along_NSS + phases[:, None, None])
    images = np.clip(127.5 + 80 * wave_NSS + 25 * noise, 0, 255).round().astype(np.uint8)
    return Examples(images[:, None], labels.astype(np.int64))


def _stream(seed: int, *name: str) -> np.random.Generator:
    return seeding.numpy_generator(seed, "data", *name)


def find_digits(_: Path) -> DataSource:
    """The digits; they are always there."""
    num = _NUM_DIGITS_TEST
    return DataSource("scikit-learn", 1797 - num, num, (1, 8, 8), 10, _read_digits)


def _read_digits(_: "DataConfig", draw: int | None) -> Parts:
    pixels, labels = _pixels_and_labels()
    # Ink counts 0..16 stretched to 0..255, so that scaling by 255 gives [0, 1] as for any image.
    images = np.round(pixels * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    everything = Examples(images, labels.astype(np.int64))
    order = stratified_order(everything.labels, _stream(draw or 0, "digits"))
    test, train = np.sort(order[:_NUM_DIGITS_TEST]), np.sort(order[_NUM_DIGITS_TEST:])
    return Parts(everything.subset(train), everything.subset(test), num_classes=10)


@functools.cache
def _pixels_and_labels() -> tuple[np.ndarray, np.ndarray]:
    """Ink counts, 64 a row, and classes.

    scikit-learn takes one to two seconds to import, so its file is read instead; its own reader is
    asked where a version keeps the file elsewhere.
    """
    package = find_spec("sklearn")
    for place in (package.submodule_search_locations or ()) if package is not None else ():
        path = Path(place) / "datasets" / "data" / "digits.csv.gz"
        if path.exists():
            table = np.loadtxt(path, delimiter=",")
            return table[:, :-1], table[:, -1]
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return pixels, labels
