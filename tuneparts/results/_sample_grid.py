"""Examples as a net sees them: each with draws of its augmentation, made by the code of training.

Legend: E examples, D draws of each, C channels, H height, W width.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tuneparts.core.errors import DataError
from tuneparts.data.task import Task
from tuneparts.search.spec import Search

NUM_EXAMPLES = 4
NUM_DRAWS = 7


@dataclass(frozen=True, eq=False)
class SampleGrid:
    """Examples and draws of their augmentation, at the hyperparameters of one selected trial."""

    arm: str
    seed: int
    trial: str
    hypers: Mapping[str, float]  # by metric name
    labels: tuple[int | str, ...]  # class of each example (E), or its numbers in words
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


def of(search: Search, selected: pd.DataFrame, *, has_run: bool) -> tuple[SampleGrid, ...] | str:
    """Grids for the first seed of every arm that augments images, or why there are none."""
    found = []
    for arm in search.arms:
        own = selected[selected["arm"] == arm.name]
        hypers = getattr(arm.config, "hypers", None)
        if arm.source is not None or hypers is None or not len(own):
            continue
        row = own.iloc[0].filter(regex="^hyper/").astype(float).dropna()
        values = {str(name).removeprefix("hyper/"): float(value) for name, value in row.items()}
        values = {name: value for name, value in values.items() if hypers.is_augmentation(name)}
        if any(values.values()):
            found.append((arm, own.iloc[0], hypers.augmentation().at(values), values))
    if not found or search.data is None:
        return ()
    if ":" in search.data.name and not has_run:  # a user's own function
        return f"Reading calls nothing; `tuneparts resume` shows `{search.data.name}`."
    from tuneparts.hypers.hypers import augmented_pixels  # brings torch

    grids: list[SampleGrid] = []
    tasks: dict[int | None, Task] = {}
    for arm, row, config, values in found:
        seed = int(row["seed"])
        draw = seed if search.draws_data else None
        try:
            task = tasks[draw] = tasks[draw] if draw in tasks else search.load_data(draw=draw)
        except DataError as error:
            return f"The data is not on this machine: {error}"
        if len(task.in_shape) != 3:
            return "Inputs are vectors; only images can be shown."
        if not task.has_pixels:
            return "Inputs are real numbers without a scale; only pixels can be shown."
        # The first example of each of the first classes; the first ones where there are none.
        labels, first = task.train.labels, np.arange(len(task.train.labels))
        has_classes = labels.dtype == np.int64 and labels.ndim == 1
        if has_classes:
            first = np.unique(labels, return_index=True)[1]
        chosen = task.train.subset(first[:NUM_EXAMPLES])
        words = [", ".join(f"{value:g}" for value in np.ravel(one)) for one in chosen.labels]
        draws = augmented_pixels(config, chosen.inputs, task, num=NUM_DRAWS, seed=seed)
        named = {f"hyper/{name}": value for name, value in values.items()}
        shown: tuple[int | str, ...] = tuple(map(int, chosen.labels) if has_classes else words)
        originals = np.moveaxis(np.asarray(chosen.inputs), 1, -1)
        grids.append(SampleGrid(arm.name, seed, str(row["trial"]), named, shown, originals, draws))
    return tuple(grids)
