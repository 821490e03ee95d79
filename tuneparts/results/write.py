"""A report on disk: page, tables, figures and metadata, each file replaced as a whole."""

from pathlib import Path

from tuneparts.core import atomic
from tuneparts.results import rendering, tables
from tuneparts.results.figures.drawing import Drawing
from tuneparts.results.figures.gallery import draw
from tuneparts.results.page import address, page
from tuneparts.results.run_data import RunData


def write(run_data: RunData, folder: Path) -> dict[str, Path]:
    """Write the report of a run into a folder.

    Only `report.html` holds plotly's code, packed (2 MB), so that the page can be mailed and the
    folder stays small.

    Args:
        run_data: The run.
        folder: Made if missing.

    Returns:
        Path by name relative to the folder: report.html, table.md, table.csv, table.tex,
        trials.csv, metadata.json, and figures/<name>.json and .csv for each figure that has data.
    """
    metadata = run_data.metadata
    drawings = {address(request): draw(request, run_data) for request in metadata.figures}
    texts = {
        "report.html": page(run_data, drawings),
        "table.md": rendering.to_markdown(run_data.tables),
        "table.csv": tables.to_csv(run_data.summary, metadata),
        "table.tex": rendering.to_latex(run_data.tables),
        "trials.csv": run_data.trials.to_csv(index=False, lineterminator="\n"),
        "metadata.json": metadata.to_json(),
    }
    for name, drawing in drawings.items():
        if isinstance(drawing, Drawing):
            texts[f"figures/{name}.json"] = drawing.figure.to_json()
            texts[f"figures/{name}.csv"] = drawing.data.to_csv(index=False, lineterminator="\n")
    for name, text in texts.items():
        atomic.write_text(folder / name, text)
    return {name: folder / name for name in texts}
