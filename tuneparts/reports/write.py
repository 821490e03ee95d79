"""A report on disk: page, tables, figures and the outline, each file replaced as a whole."""

import re
from pathlib import Path

import pandas as pd

from tuneparts import atomic
from tuneparts.reports import tables
from tuneparts.reports.evidence import Evidence, Finder
from tuneparts.reports.figures.drawing import Drawing
from tuneparts.reports.figures.gallery import draw
from tuneparts.reports.outline import Outline
from tuneparts.reports.page import figure_page, page


def write(
    outline: Outline,
    trials: pd.DataFrame,
    steps: pd.DataFrame,
    folder: Path,
    *,
    find: Finder | None = None,
) -> dict[str, Path]:
    """Write the report into the folder.

    Args:
        outline: the search as told.
        trials: one row per trial.
        steps: one row per trial, metric and step.
        folder: made if missing.
        find: where tables that trials left are found, if they are at hand.

    Returns:
        Path by name relative to the folder: report.html, table.md, table.csv, table.tex,
        trials.csv, outline.json, and figures/<name>.html, .json and .csv for each figure that
        has data.
    """
    return write_evidence(Evidence(outline, trials, steps, find=find), folder)


def write_evidence(evidence: Evidence, folder: Path) -> dict[str, Path]:
    """As `write`, from evidence that may hold more than the frames."""
    outline, trials = evidence.outline, evidence.trials
    drawings = {request: draw(request, evidence) for request in outline.figures}
    built = tables.build(evidence.summary, outline)
    texts = {
        "report.html": page(evidence, drawings),
        "table.md": tables.to_markdown(built),
        "table.csv": tables.to_csv(evidence.summary, outline),
        "table.tex": tables.to_latex(built),
        "trials.csv": trials.to_csv(index=False, lineterminator="\n"),
        "outline.json": outline.to_json(),
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
