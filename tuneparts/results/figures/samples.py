"""The data under the augmentation that each arm found, as images."""

import base64
import io

import numpy as np
import numpy.typing as npt
import pandas as pd
from PIL import Image

from tuneparts.core import schema
from tuneparts.results.figures.drawing import Drawing, Note, canvas, place
from tuneparts.results.figures.style import arm_styles, in_focus
from tuneparts.results.run_data import RunData
from tuneparts.results.sample_grid import SampleGrid
from tuneparts.results.tables import label, number

TITLE = "Data under the augmentation found"


def samples(run_data: RunData) -> Drawing | Note:
    """Draw a panel per arm: examples down, the example itself and its draws across."""
    shown = in_focus(run_data.metadata)
    grids = tuple(grid for grid in run_data.sample_grids if grid.arm in shown)
    if not grids:
        return Note(TITLE, run_data.sample_grids_note or "No selected trial augments images.")
    names = arm_styles(run_data.metadata)
    figure = canvas(len(grids), [names[grid.arm].name for grid in grids])
    for panel, grid in enumerate(grids):
        where = place(panel, len(grids))
        height, width = grid.mosaic().shape[:2]
        figure.add_image(source=_png(grid.mosaic()), hoverinfo="skip", dx=1, dy=1, **where)
        down, across = (size + 1 for size in grid.originals_EHWC.shape[1:3])
        num_draws = grid.draws_EDHWC.shape[1]
        figure.update_xaxes(
            tickvals=[across * (0.5 + i) for i in range(num_draws + 1)],
            ticktext=["data", *(str(i + 1) for i in range(num_draws))],
            title_text="draw",
            showgrid=False,
            range=[-0.5, width - 0.5],
            constrain="domain",
            **where,
        )
        figure.update_yaxes(
            tickvals=[down * (0.5 + i) for i in range(len(grid.labels))],
            ticktext=[str(one) for one in grid.labels],
            title_text="class",
            showgrid=False,
            range=[height - 0.5, -0.5],
            constrain="domain",
            **where,
        )
    words = "; ".join(f"{grid.arm}: {_values(grid)}" for grid in grids)
    caption = (
        "Training examples (first column) and what the net is shown in their place: independent "
        f"draws at the hypers of the selected trial of seed {grids[0].seed}. {words}."
    )
    left_out = len(run_data.sample_grids) - len(grids)
    caption += f" {left_out} more arms are in the data file only." if left_out else ""
    data = table(run_data.sample_grids)
    return Drawing(TITLE, figure, caption, data, min_width=560 if len(grids) > 1 else 0)


def table(grids: tuple[SampleGrid, ...]) -> pd.DataFrame:
    """Return one row per arm and hyper: the values that the draws were made at."""
    rows = [
        (grid.arm, grid.seed, grid.trial, name, value)
        for grid in grids
        for name, value in grid.hypers.items()
    ]
    return pd.DataFrame(rows, columns=["arm", "seed", "trial", "metric", "value"])


def _values(grid: SampleGrid) -> str:
    return ", ".join(
        f"{label(name)} {number(value, schema.lookup(name).decimals)}"
        for name, value in grid.hypers.items()
    )


def _png(image_HWC: npt.NDArray[np.uint8]) -> str:
    """Encode an image as a data URI, so that the page needs no second file."""
    channels = image_HWC.shape[2]
    image = Image.fromarray(image_HWC[:, :, 0] if channels == 1 else image_HWC[:, :, :3])
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
