"""A report on disk: page, tables, figures and the metadata, each file replaced as a whole."""

import re
from pathlib import Path

import pandas as pd

from tuneparts import atomic
from tuneparts.reports import tables
from tuneparts.reports.figures.drawing import Drawing
from tuneparts.reports.figures.gallery import draw
from tuneparts.reports.metadata import ReportMetadata
from tuneparts.reports.page import figure_page, page
from tuneparts.reports.run_data import Finder, RunData


def write(
    metadata: ReportMetadata,
    trials: pd.DataFrame,
    steps: pd.DataFrame,
    folder: Path,
    *,
    find: Finder | None = None,
) -> dict[str, Path]:
    """Write the report into the folder.

    Args:
        metadata: the search as told.
        trials: one row per trial.
        steps: one row per trial, metric and step.
        folder: made if missing.
        find: where tables that trials left are found, if they are at hand.

    Returns:
        Path by name relative to the folder: report.html, table.md, table.csv, table.tex,
        trials.csv, metadata.json, and figures/<name>.html, .json and .csv for each figure that
        has data.
    """
    return write_run_data(RunData(metadata, trials, steps, find=find), folder)


def write_run_data(run_data: RunData, folder: Path) -> dict[str, Path]:
    """As `write`, from run_data that may hold more than the frames."""
    metadata, trials = run_data.metadata, run_data.trials
    drawings = {request: draw(request, run_data) for request in metadata.figures}
    built = tables.build(run_data.summary, metadata)
    texts = {
        "report.html": page(run_data, drawings),
        "table.md": tables.to_markdown(built),
        "table.csv": tables.to_csv(run_data.summary, metadata),
        "table.tex": tables.to_latex(built),
        "trials.csv": trials.to_csv(index=False, lineterminator="\n"),
        "metadata.json": metadata.to_json(),
    }
    for request, drawing in drawings.items():
        if isinstance(drawing, Drawing):
            stem = "figures/" + re.sub(r"[^A-Za-z0-9._-]+", "-", request)
            texts[f"{stem}.html"] = figure_page(drawing)
            texts[f"{stem}.json"] = drawing.figure.to_json()
            texts[f"{stem}.csv"] = drawing.data.to_csv(index=False, lineterminator="\n")
    for name, text in texts.items():
        atomic.write_text(folder / name, text)
    return {name: folder / name for name in texts}
