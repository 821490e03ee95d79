"""Generated sets: input selection, and tiny learnable sets for tests.

A larger request extends a set: its first examples stay what they were.

Shapes: N examples, D features, S side of an image.
"""

import numpy as np
from pydantic import Field, model_validator

from tuneparts.core import seeding
from tuneparts.core.config import Config
from tuneparts.data.task import Examples

_SIDE = 8
_BLOB_DIMENSIONS = 8


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
    def _check_num_inputs(self) -> "InputSelection":
        if self.num_inputs is not None and self.num_inputs > self.num_all:
            raise ValueError(
                f"`num_inputs <= num_informative + num_spurious = {self.num_all}` must hold, "
                f"but got {self.num_inputs}."
            )
        return self

    @property
    def num_all(self) -> int:
        """Inputs before any is left out."""
        return self.num_informative + self.num_spurious

    def draw(self, count: int, *, seed: int, part: str) -> Examples:
        """Draw examples of two classes with labels that are fair coins; float32 (N, D).

        The noise of an input does not depend on how many inputs are kept, so that sets that
        differ in `num_inputs` alone share their columns.
        """
        labels = _stream(seed, "input_selection", part, "labels").integers(0, 2, count)
        normal = _stream(seed, "input_selection", part, "noise").standard_normal(
            (count, self.num_all)
        )
        told = self.num_informative
        normal[:, :told] = labels[:, None] + self.noise * normal[:, :told]
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
