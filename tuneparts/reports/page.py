"""The report page: one HTML file that needs no network, for screen, phone and paper.

Everything that comes from outside (names, errors, commands) is escaped here; the content
security policy forbids the page to load anything, whatever slipped through.
"""

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources

import pandas as pd
from plotly.offline import get_plotlyjs

from tuneparts.reports.answer import answer
from tuneparts.reports.figures.drawing import Drawing, Note
from tuneparts.reports.figures.gallery import draw
from tuneparts.reports.run_data import RunData
from tuneparts.reports.select import OUTCOMES
from tuneparts.reports.tables import Table, build, to_csv

MAX_LISTED = 200
"""Failed trials listed on the page; the rest are counted and in trials.csv."""
MAX_ROOMY = 9
"""Columns that fit a screen in ordinary letters; wider tables are set smaller."""
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)


def page(run_data: RunData, drawings: Mapping[str, Drawing | Note] | None = None) -> str:
    """The whole page as text; the same run_data gives the same text.

    Args:
        run_data: the run.
        drawings: figures by request where they are drawn already.
    """
    metadata = run_data.metadata
    if drawings is None:
        drawings = {request: draw(request, run_data) for request in metadata.figures}
    title = escape(f"{metadata.name} ({metadata.scale})" if metadata.scale else metadata.name)
    body = [
        f'<header><p class="kind">{title}</p><h1>{escape(metadata.question)}</h1>',
        f'<p class="answer">{escape(answer(run_data))}</p></header>',
        *_tables(run_data),
        *(_figure(number, drawing) for number, drawing in enumerate(drawings.values(), start=1)),
        _troubles(run_data.trials),
        _notes(metadata.notes),
        _provenance(run_data),
    ]
    return _document(title, body)


def figure_page(drawing: Drawing) -> str:
    """One figure with its caption and data as a page of its own."""
    return _document(escape(drawing.title), [_figure(1, drawing)])


def _document(title: str, body: Iterable[str]) -> str:
    assets = resources.files("tuneparts.reports")
    style = assets.joinpath("page.css").read_text(encoding="utf-8")
    script = assets.joinpath("page.js").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<title>{title}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + f"\n</main>\n<script>{get_plotlyjs()}</script>\n<script>\n{script}</script>\n"
        "</body>\n</html>\n"
    )


def html_table(table: Table) -> str:
    """A table of arms with its notes below."""
    kinds = [
        ("num" if column.is_number else "name") + (" wrap" if column.may_wrap else "")
        for column in table.columns
    ]
    head = "".join(
        f'<th scope="col" class="{kind}">{escape(column.header)}</th>'
        for kind, column in zip(kinds, table.columns, strict=True)
    )
    rows = []
    for row in table.rows:
        cells = []
        for kind, cell in zip(kinds, row, strict=True):
            # A count stays with what it counts where a cell breaks.
            text = re.sub(r"(\d) ([a-z])|(±) ", r"\1\3&nbsp;\2", escape(cell.text))
            cells.append(f'<td class="{kind}">{f"<b>{text}</b>" if cell.is_best else text}</td>')
        cells[0] = f'<th scope="row">{escape(row[0].text)}</th>'
        rows.append(f"<tr>{''.join(cells)}</tr>")
    dense = ' class="dense"' if len(table.columns) > MAX_ROOMY else ""
    notes = "".join(f"<li>{escape(note)}</li>" for note in (*table.notes, table.provenance))
    return (
        f'<div class="wide"><table{dense}><thead><tr>{head}</tr></thead>'
        f'<tbody>{"".join(rows)}</tbody></table></div><ul class="notes">{notes}</ul>'
    )


def _tables(run_data: RunData) -> list[str]:
    built = build(run_data.summary, run_data.metadata)
    parts = []
    for heading, table in zip(("Scores and costs", "Hypers"), built, strict=False):
        link = _download("table.csv", to_csv(run_data.summary, run_data.metadata))
        parts.append(f"<section><h2>{heading}</h2>{html_table(table)}{link}</section>")
    return parts


def _figure(number: int, drawing: Drawing | Note) -> str:
    title = escape(drawing.title)
    if isinstance(drawing, Note):
        text = escape(drawing.text)
        return f'<section><h2>{title}</h2><p class="missing">{text}</p></section>'
    width = f' style="min-width:{drawing.min_width}px"' if drawing.min_width else ""
    height = int(drawing.figure.layout.height)
    # Inside a script element only "<" could end it or open a comment.
    data = drawing.figure.to_json().replace("<", "\\u003c")
    csv = drawing.data.to_csv(index=False, lineterminator="\n")
    return (
        f'<section class="figure"><h2>{title}</h2><div class="wide">'
        f'<div class="plot" id="figure-{number}"{width}>'
        f'<div class="room" style="height:{height}px"></div></div></div>'
        f'<script type="application/json" data-for="figure-{number}">{data}</script>'
        f"<p class='caption'>{escape(drawing.caption)}</p>"
        f"{_download(f'figure-{number}.csv', csv, more=_still(number))}</section>"
    )


def _troubles(trials: pd.DataFrame) -> str:
    rows = trials[trials["outcome"].eq("failed") | ~trials["outcome"].isin(OUTCOMES)]
    if rows.empty:
        return ""
    items = [
        f"<li><b>{escape(str(row['trial']))}</b> {escape(str(row['outcome'] or 'not finished'))}"
        f" <code>{escape(str(row['run_id']))}</code>"
        + (f"<pre>{escape(str(row['error']))}</pre>" if row["error"] else "")
        + "</li>"
        for row in rows.head(MAX_LISTED).fillna({"error": "", "outcome": ""}).to_dict("records")
    ]
    more = len(rows) - len(items)
    rest = f"<p>{more} more are listed in trials.csv.</p>" if more else ""
    heading = f"Failed and unfinished trials ({len(rows)})"
    return f'<section><h2>{heading}</h2><ul class="troubles">{"".join(items)}</ul>{rest}</section>'


def _notes(notes: str) -> str:
    paragraphs = [escape(text.strip()) for text in notes.split("\n\n") if text.strip()]
    if not paragraphs:
        return ""
    body = "".join(f"<p>{text}</p>" for text in paragraphs)
    return f"<section><h2>What differs from the paper</h2>{body}</section>"


def _provenance(run_data: RunData) -> str:
    metadata = run_data.metadata
    facts = {
        "command": metadata.command,
        "parent run": metadata.parent_run_id,
        "config digest": metadata.digest,
        "commit": metadata.commit,
        "MLflow UI": metadata.ui_command,
        **{f"{name} version": version for name, version in sorted(metadata.versions.items())},
    }
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd><code>{escape(value or 'unknown')}</code></dd>"
        for name, value in facts.items()
    )
    return f'<section><h2>Where it comes from</h2><dl class="facts">{rows}</dl></section>'


def _download(name: str, csv: str, *, more: str = "") -> str:
    data = base64.b64encode(csv.encode()).decode()
    return (
        f'<p class="download"><a download="{escape(name)}" '
        f'href="data:text/csv;charset=utf-8;base64,{data}">data as CSV</a>{more}</p>'
    )


def _still(number: int) -> str:
    """What the script turns into a download of the figure as drawn."""
    return f' <button type="button" data-still="figure-{number}">figure as SVG</button>'


def embedded(text: str) -> Sequence[object]:
    """The figures inside a page, as plain data: for tests and for reading a page back."""
    marker = '<script type="application/json"'
    parts = text.split(marker)[1:]
    return [json.loads(part.split(">", 1)[1].split("</script>", 1)[0]) for part in parts]
