"""The data under the augmentation that each arm found: people trust what they can see."""

import base64
import io

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go
from PIL import Image

from tuneparts import schema
from tuneparts.reports.evidence import Evidence
from tuneparts.reports.figures.drawing import Drawing, Note, canvas, place
from tuneparts.reports.figures.looks import looks
from tuneparts.reports.sheet import Sheet
from tuneparts.reports.tables import label, number

TITLE = "Data under the augmentation found"


def samples(evidence: Evidence) -> Drawing | Note:
    """A panel per arm: examples down, the example itself and its draws across."""
    sheets = evidence.sheets
    if not sheets:
        return Note(TITLE, evidence.sheets_note or "No selected trial augments images.")
    names = looks(evidence.outline)
    figure = canvas(len(sheets), [names[sheet.arm].name for sheet in sheets])
    for panel, sheet in enumerate(sheets):
        where = place(panel, len(sheets))
        height, width = sheet.mosaic().shape[:2]
        figure.add_trace(
            go.Image(source=_png(sheet.mosaic()), hoverinfo="skip", dx=1, dy=1), **where
        )
        cell = sheet.originals_EHWC.shape[2] + 1
        num_draws = sheet.draws_EDHWC.shape[1]
        figure.update_xaxes(
            tickvals=[cell * (0.5 + i) for i in range(num_draws + 1)],
            ticktext=["data", *(str(i + 1) for i in range(num_draws))],
            title_text="draw",
            showgrid=False,
            range=[-0.5, width - 0.5],
            constrain="domain",
            **where,
        )
        figure.update_yaxes(
            tickvals=[
                (sheet.originals_EHWC.shape[1] + 1) * (0.5 + i) for i in range(len(sheet.labels))
            ],
            ticktext=[str(one) for one in sheet.labels],
            title_text="class",
            showgrid=False,
            range=[height - 0.5, -0.5],
            constrain="domain",
            **where,
        )
    words = "; ".join(f"{sheet.arm}: {_values(sheet)}" for sheet in sheets)
    caption = (
        "Training examples (first column) and what the net is shown in their place: independent "
        f"draws at the hypers of the selected trial of seed {sheets[0].seed}. {words}."
    )
    return Drawing(TITLE, figure, caption, table(sheets), min_width=560 if len(sheets) > 1 else 0)


def table(sheets: tuple[Sheet, ...]) -> pd.DataFrame:
    """One row per arm and hyper: the values that the draws were made at."""
    rows = [
        (sheet.arm, sheet.seed, sheet.trial, name, value)
        for sheet in sheets
        for name, value in sheet.hypers.items()
    ]
    return pd.DataFrame(rows, columns=["arm", "seed", "trial", "metric", "value"])


def _values(sheet: Sheet) -> str:
    return ", ".join(
        f"{label(name)} {number(value, schema.lookup(name).decimals)}"
        for name, value in sheet.hypers.items()
    )


def _png(image_HWC: npt.NDArray[np.uint8]) -> str:
    """As a data URI, so that the page needs no second file."""
    channels = image_HWC.shape[2]
    image = Image.fromarray(image_HWC[:, :, 0] if channels == 1 else image_HWC[:, :, :3])
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
