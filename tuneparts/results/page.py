"""The report page: one HTML file that needs no network, for screen, phone and paper.

The template `page.html` escapes everything that comes from outside (names, errors, commands); the
content security policy forbids the page to load anything, whatever slipped through. Where a
headless Chromium is installed, it draws the figures as SVG files too.
"""

import base64
import functools
import gzip
import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

from jinja2 import Environment
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from tuneparts.core.glossary import GLOSSARY
from tuneparts.results import rendering
from tuneparts.results.figures.drawing import Drawing, Note
from tuneparts.results.progress import clock
from tuneparts.results.rendering import NOTHING
from tuneparts.results.run_data import RunData
from tuneparts.results.select import OUTCOMES
from tuneparts.results.tables import _to_csv
from tuneparts.search.frames import NOT_STARTED

MAX_LISTED = 200
"""Failed trials listed on the page; the rest are counted and in trials.csv."""
_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)
"""What a browser lets the page do: run the two scripts that it knows by hash, and no other."""
_Section: TypeAlias = dict[str, Any]
"""What the template shows of one section: its id, heading and kind, and what the kind needs."""
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


def _page(run_data: RunData, drawings: Mapping[str, Drawing | Note]) -> str:
    metadata, trials = run_data.metadata, run_data.trials
    facts = dict(metadata.facts)
    if {"start", "end"} <= set(trials) and trials["end"].notna().any():
        seconds = (trials["end"].max() - trials["start"].min()).total_seconds()
        facts["took"] = f"{clock(seconds)} from the first trial to the last"
    title = f"{metadata.name} ({metadata.scale})" if metadata.scale else metadata.name
    header = {"kind": title, "heading": metadata.question, "answer": run_data.answer}
    summary = _base64(_to_csv(run_data.summary, metadata))
    sections = [
        *(_table(table, "table-") for table in run_data.tables),
        {"kind": "download", "name": "table.csv", "csv": summary},
        _arms(run_data),
        *(_table(table, "verdict-") for table in run_data.comparisons),
        *(_figure(name, drawing) for name, drawing in drawings.items()),
        *_ends(run_data),
    ]
    return _render(title, sections, header={**header, "facts": facts}, has_contents=True)


def figure_page(drawing: Drawing) -> str:
    """Return one figure, with its caption and data, as its own page."""
    return _render(drawing.title, [_figure("figure", drawing)])


def benchmark_page(table: rendering.Table) -> str:
    """Return the page of a benchmark: its table."""
    scores = _table(table) | {"id": "scores", "heading": "Scores"}
    return _render(table.heading, [scores], header={"heading": table.heading})


def address(request: str) -> str:
    """Return the name of a figure in addresses and files; `accuracy-test-nll`, for instance."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", request)


def _render(title: str, sections: list[_Section], **more: Any) -> str:
    room = resources.files("tuneparts.results")
    files = (room.joinpath(f"page.{kind}") for kind in ("html", "css", "js"))
    page, style, script = (file.read_text(encoding="utf-8") for file in files)
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    # A script is known by the hash of what is between its tags.
    digests = [hashlib.sha256(one.encode()).digest() for one in (get_plotlyjs(), script)]
    hashes = " ".join(f"'sha256-{base64.b64encode(one).decode()}'" for one in digests)
    glossary = {word: _code(escape(meaning)) for word, meaning in GLOSSARY.items()}
    assets = {"policy": _POLICY.format(scripts=hashes), "style": style, "script": script}
    assets["plotly"] = _packed_plotly()
    more |= {name: Markup(text) for name, text in assets.items()}
    template = environment.from_string(page)
    return template.render(title=title, sections=sections, glossary=glossary, **more)


@functools.cache
def _packed_plotly() -> str:
    """Plotly's code, which page.js unpacks: 2 MB instead of 4.8."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def _code(html: str) -> Markup:
    return Markup(re.sub("`(.+?)`", r"<code>\1</code>", str(html)))


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _table(table: rendering.Table, prefix: str = "") -> _Section:
    name, html = f"{prefix}{address(table.heading).lower()}", Markup(rendering._to_html(table))
    return {"kind": "table", "id": name, "heading": table.heading, "table": html}


def _arms(run_data: RunData) -> _Section:
    """What each arm is, what its trials draw, and what they may spend."""
    rows = []
    for arm in run_data.metadata.arms:
        steps = f"{arm.steps:,}" if arm.steps else "varies"
        words = [arm.name, f"{arm.what} {arm.budget_note}".strip(), arm.space or NOTHING]
        rows.append([*words, arm.trials_per_seed, steps, len(arm.seeds)])
    prose = ["what it is", "what its trials draw"]
    numbers = ["trials per seed", "steps per trial", "seeds"]
    table = rendering.Table.of_rows(["arm", *prose, *numbers], rows, prose=prose, numbers=numbers)
    html = _code(rendering._to_html(table))
    return {"kind": "table", "id": "arms", "heading": "The arms", "table": html}


def _figure(name: str, drawing: Drawing | Note) -> _Section:
    if isinstance(drawing, Note):
        return {"kind": "missing", "id": name, "heading": drawing.title, "text": drawing.text}
    # Inside a script element only "<" could end it or open a comment.
    numbers = Markup(drawing.figure.to_json().replace("<", "\\u003c"))
    csv = _base64(drawing.data.to_csv(index=False, lineterminator="\n"))
    common = {"kind": "figure", "id": name, "heading": drawing.title}
    return {**common, "drawing": drawing, "json": numbers, "csv": csv}


def _ends(run_data: RunData) -> list[_Section]:
    """What is below the figures: failed trials, notes on the paper, and where it comes from."""
    metadata, trials, found = run_data.metadata, run_data.trials, list[_Section]()
    failed = trials[~trials["outcome"].isin({*OUTCOMES, NOT_STARTED} - {"failed"})]
    if len(failed):
        rows = failed.head(MAX_LISTED).fillna({"error": "", "outcome": ""}).to_dict("records")
        heading = f"Failed and unfinished trials ({len(failed)})"
        listed = {"rows": rows, "more": len(failed) - len(rows)}
        found.append({"kind": "troubles", "id": "troubles", "heading": heading, **listed})
    if texts := [text.strip() for text in metadata.notes.split("\n\n") if text.strip()]:
        heading = "What differs from the paper"
        found.append({"kind": "notes", "id": "notes", "heading": heading, "texts": texts})
    facts = {
        "command": metadata.command,
        **{f"extended ({n})": step for n, step in enumerate(metadata.history, start=1)},
        "parent run": metadata.parent_run_id,
        "config digest": metadata.digest,
        "commit": metadata.commit,
        "MLflow UI": metadata.ui_command,
        **{f"{name} version": version for name, version in sorted(metadata.versions.items())},
    }
    facts = {name: value or "unknown" for name, value in facts.items()}
    heading = "Where it comes from"
    return [*found, {"kind": "facts", "id": "origin", "heading": heading, "facts": facts}]


def browser() -> str | None:
    """Return the path of the browser that draws; None where there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


def _write_svgs(folder: Path) -> dict[str, Path]:
    """Draw every `figures/<name>.json` of a report as `figures/<name>.svg` next to it."""
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
