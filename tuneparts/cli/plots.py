"""A figure into a file of one's choice: `--plot FILE` of several verbs."""

import json
from pathlib import Path
from typing import Any

from tuneparts.errors import ConfigError
from tuneparts.reports import page, static_export


def check(path: Path) -> None:
    """Refuse what could not be drawn before the work, not after it."""
    if path.suffix not in {".html", ".svg"}:
        raise ConfigError(f"a plot is an .html or an .svg file, but got `{path}`.")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"a plot goes into a folder that is there, but got `{path}`.")
    if path.suffix == ".svg" and static_export.browser() is None:
        raise ConfigError("an .svg file is drawn by Chromium, which is not here; .html needs none.")


def write(path: Path, drawing: Any) -> None:
    """Draw it: a page that one can hover over, or a still."""
    if path.suffix == ".html":
        text = page.figure_page(drawing)
    else:
        text = static_export.svgs({"plot": json.loads(drawing.figure.to_json())})["plot"]
    path.write_text(text, encoding="utf-8", newline="\n")
