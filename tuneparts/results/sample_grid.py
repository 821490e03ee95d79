"""Examples as a net sees them: each example beside draws of its augmentation.

The draws are made by the very code that training used, at the hypers that the run reported.

Legend: E examples, D draws of each, C channels, H height, W width.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tuneparts.core.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

    from tuneparts.data.task import Task

NUM_EXAMPLES = 4
NUM_DRAWS = 7


@dataclass(frozen=True, eq=False)
class SampleGrid:
    """Examples and draws of their augmentation, at the hypers of one selected trial."""

    arm: str
    seed: int
    trial: str
    hypers: Mapping[str, float]
    """The values that the draws were made at, by metric name."""
    labels: tuple[int | str, ...]
    """Class of each example (E), or its numbers in words."""
    originals_EHWC: npt.NDArray[np.uint8]
    draws_EDHWC: npt.NDArray[np.uint8]

    def mosaic(self, *, gap: int = 1) -> npt.NDArray[np.uint8]:
        """Put all into one image, with grey gaps: a row per example, the example then its draws."""
        images_EIHWC = np.concatenate([self.originals_EHWC[:, None], self.draws_EDHWC], axis=1)
        edges = ((0, 0), (0, 0), (0, gap), (0, gap), (0, 0))
        padded = np.pad(images_EIHWC, edges, constant_values=128)
        rows = [np.concatenate(list(row_IHWC), axis=1) for row_IHWC in padded]
        whole: npt.NDArray[np.uint8] = np.concatenate(rows)[: -gap or None, : -gap or None]
        return whole


def of(search: Any, selected: "pd.DataFrame", has_run: bool) -> tuple[tuple[SampleGrid, ...], str]:
    """Make a grid for the first seed of every arm that augments images, or say why there is none.

    An arm that follows another trains at its leader's hypers, and has no grid of its own.

    Args:
        search: the resolved search.
        selected: the selected trial of each (arm, seed).
        has_run: whether this process ran the search, so that a data function may be called.
    """
    found = []
    for arm in search.arms:
        own = selected[selected["arm"] == arm.name]
        hypers = getattr(arm.config, "hypers", None)
        if arm.follows is not None or hypers is None or not len(own):
            continue
        values = {
            str(name): float(value)
            for name, value in own.iloc[0].items()
            if str(name).startswith("hyper/")
            and hypers.is_augmentation(str(name).removeprefix("hyper/"))
            and not np.isnan(float(value))
        }
        if any(values.values()):
            found.append((arm, own.iloc[0], values))
    if not found:
        return (), ""
    if ":" in search.data.name and not has_run:
        return (), f"Reading calls nothing; `tuneparts resume` shows `{search.data.name}`."
    seeds = {int(row["seed"]): search.arm_seeds(arm) for arm, row, _ in found}
    try:
        tasks = {seed: search.load_data(draw=of_arm.data(seed)) for seed, of_arm in seeds.items()}
    except DataError as error:
        return (), f"The data is not on this machine: {error}"
    task = next(iter(tasks.values()))
    if len(task.in_shape) != 3:
        return (), "Inputs are vectors; only images can be shown."
    if not task.has_pixels:
        return (), "Inputs are real numbers without a scale; only pixels can be shown."
    return tuple(_grid(arm, row, values, tasks[int(row["seed"])]) for arm, row, values in found), ""


def _grid(arm: Any, row: "pd.Series[Any]", values: dict[str, float], task: "Task") -> SampleGrid:
    """Draw the first example of each of the first classes; the first ones where there are none."""
    from tuneparts.hypers.hypers import augmented_pixels  # brings torch

    labels_N = task.train.labels
    has_classes = labels_N.dtype == np.int64 and labels_N.ndim == 1
    first = np.unique(labels_N, return_index=True)[1] if has_classes else np.arange(len(labels_N))
    chosen = task.train.subset(np.asarray(first[:NUM_EXAMPLES], dtype=np.int64))
    plain = {name.removeprefix("hyper/"): value for name, value in values.items()}
    config = arm.config.hypers.augmentation().at(plain)
    draws = augmented_pixels(config, chosen.inputs, task, num=NUM_DRAWS, seed=int(row["seed"]))
    return SampleGrid(
        arm=arm.name,
        seed=int(row["seed"]),
        trial=str(row["trial"]),
        hypers=values,
        labels=tuple(
            int(one) if has_classes else ", ".join(f"{value:g}" for value in np.ravel(one))
            for one in chosen.labels
        ),
        originals_EHWC=np.moveaxis(np.asarray(chosen.inputs), 1, -1),
        draws_EDHWC=draws,
    )
