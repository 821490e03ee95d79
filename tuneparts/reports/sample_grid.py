"""Examples as a net sees them: each example beside draws of its augmentation.

Legend: E examples, D draws of each, H height, W width, C channels.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class SampleGrid:
    """The augmentation of one selected trial, made visible."""

    arm: str
    seed: int
    trial: str
    hypers: Mapping[str, float]
    """The values that the draws were made at, by metric name."""
    labels: tuple[int, ...]
    """Class of each example (E)."""
    originals_EHWC: npt.NDArray[np.uint8]
    draws_EDHWC: npt.NDArray[np.uint8]

    def mosaic(self, *, gap: int = 1) -> npt.NDArray[np.uint8]:
        """All in one image, a row per example: the example itself, then its draws.

        Args:
            gap: pixels of neutral grey between images.
        """
        rows = []
        for original_HWC, draws_DHWC in zip(self.originals_EHWC, self.draws_EDHWC, strict=True):
            padded = [
                np.pad(image, ((0, gap), (0, gap), (0, 0)), constant_values=128)
                for image in (original_HWC, *draws_DHWC)
            ]
            rows.append(np.concatenate(padded, axis=1))
        whole: npt.NDArray[np.uint8] = np.concatenate(rows)[: -gap or None, : -gap or None]
        return whole
