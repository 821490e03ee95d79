"""Figures as SVG files for papers, drawn by a headless Chromium where one is installed.

Without a browser there are no files, and each figure of the page still offers its SVG.
"""

import json
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

from plotly.offline import get_plotlyjs

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""Browsers that can draw, in the order in which they are looked for."""
WIDTH = 760
"""Pixels; about the width of a page of text, so that letters keep their size in print."""
_log = logging.getLogger(__name__)
_FLAGS = (
    "--headless", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--dump-dom", "--virtual-time-budget=30000",
)  # fmt: skip
_PAGE = """<!DOCTYPE html><meta charset="utf-8"><body><script>%s</script><script>
(async () => {
  for (const [name, { data, layout }] of Object.entries(%s)) {
    const size = { width: %d, height: layout.height };
    const url = await Plotly.toImage({ data, layout }, { format: "svg", ...size });
    const place = document.createElement("pre");
    place.id = name;
    place.textContent = url.slice(url.indexOf(",") + 1);
    document.body.append(place);
  }
})();
</script></body>"""


def browser() -> str | None:
    """Return the path of the browser that draws; None where there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


def write(folder: Path) -> dict[str, Path]:
    """Draw every `figures/<name>.json` of a report as `figures/<name>.svg` beside it."""
    sources = sorted((folder / "figures").glob("*.json"))
    figures = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sources}
    paths = {}
    for stem, text in svgs(figures).items():
        path = paths[f"figures/{stem}.svg"] = folder / "figures" / f"{stem}.svg"
        path.write_text(text, encoding="utf-8", newline="\n")
    return paths


def svgs(figures: Mapping[str, object]) -> dict[str, str]:
    """Draw figures, given as plotly's JSON by name, as SVG text; those that fail are logged."""
    command = browser()
    if command is None or not figures:
        return {}
    data = json.dumps(dict(figures)).replace("<", "\\u003c")
    # Chromium's sandbox refuses to run as root.
    flags = [*_FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with tempfile.TemporaryDirectory(prefix="tuneparts-static-export-") as place:
        path = Path(place) / "figures.html"
        path.write_text(_PAGE % (get_plotlyjs(), data, WIDTH), encoding="utf-8")
        run = [command, *flags, f"--user-data-dir={place}/profile", path.as_uri()]
        try:
            done = subprocess.run(run, capture_output=True, text=True, timeout=120, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            _log.warning("figures are not drawn as SVG: %s", error)
            return {}
    found = dict(re.findall(r'<pre id="([^"]+)">([^<]+)</pre>', done.stdout))
    for name in sorted(set(figures) - set(found)):
        _log.warning("figure %s is not drawn as SVG", name)
    return {name: unquote(text) + "\n" for name, text in found.items()}
