"""The report page: one HTML file that needs no network, for screen, phone and paper.

Everything that comes from outside (names, errors, commands) is escaped here; the content
security policy forbids the page to load anything, whatever slipped through.
"""

import base64
import functools
import gzip
import hashlib
import re
from collections.abc import Iterable, Mapping
from html import escape
from importlib import resources

import pandas as pd
from plotly.offline import get_plotlyjs

from tuneparts.core.glossary import GLOSSARY
from tuneparts.results import rendering
from tuneparts.results.figures.drawing import Drawing, Note
from tuneparts.results.progress import clock
from tuneparts.results.rendering import NOTHING
from tuneparts.results.run_data import RunData
from tuneparts.results.select import OUTCOMES
from tuneparts.results.tables import to_csv
from tuneparts.search.card import RunCard
from tuneparts.search.frames import NOT_STARTED

MAX_LISTED = 200
"""Failed trials listed on the page; the rest are counted and in trials.csv."""
_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)
"""What a browser lets the page do: run the two scripts that it knows by hash, and no other."""


def page(run_data: RunData, drawings: Mapping[str, Drawing | Note]) -> str:
    """Return the whole page as text; the same run data gives the same text.

    `report.html#accuracy` opens it at a figure, and `report.html?figure=accuracy` shows that
    figure alone.

    Args:
        run_data: The run.
        drawings: The figures, in their order, each under its name in the address.
    """
    metadata = run_data.metadata
    title = escape(f"{metadata.name} ({metadata.scale})" if metadata.scale else metadata.name)
    sections = [
        *_tables(run_data),
        _arms(metadata),
        *_verdicts(run_data),
        *(_figure(name, drawing) for name, drawing in drawings.items()),
        _troubles(run_data.trials),
        _notes(metadata.notes),
        _provenance(run_data),
    ]
    header = (
        f'<header><p class="kind">{title}</p><h1>{escape(metadata.question)}</h1>'
        f'<p class="answer">{escape(run_data.answer)}</p>{_facts(run_data)}{_words()}</header>'
    )
    return _document(title, [header, _contents(sections), *sections])


def figure_page(drawing: Drawing) -> str:
    """Return one figure, with its caption and data, as a page of its own."""
    return _document(escape(drawing.title), [_figure("figure", drawing)])


def benchmark_page(table: rendering.Table) -> str:
    """Return the page of a benchmark: its table."""
    heading = escape(table.heading)
    body = [
        f"<header><h1>{heading}</h1>{_words()}</header>",
        f'<section id="scores"><h2>Scores</h2>{rendering.to_html(table)}</section>',
    ]
    return _document(heading, body)


def address(request: str) -> str:
    """Return the name that a figure has in addresses and file names.

    Example:
        >>> address("accuracy:test/nll")
        'accuracy-test-nll'
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", request)


def _document(title: str, body: Iterable[str]) -> str:
    assets = resources.files("tuneparts.results")
    style = assets.joinpath("page.css").read_text(encoding="utf-8")
    scripts = [get_plotlyjs(), assets.joinpath("page.js").read_text(encoding="utf-8")]
    policy = _POLICY.format(scripts=" ".join(map(_hash, scripts)))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<title>{title}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + f'\n</main>\n<script type="text/plain" id="plotly">{_packed_plotly()}</script>\n'
        f"<script>{scripts[1]}</script>\n</body>\n</html>\n"
    )


def _hash(script: str) -> str:
    """Return the name of a script in the policy: the hash of what stands between its tags."""
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


@functools.cache
def _packed_plotly() -> str:
    """Plotly's code, which page.js unpacks: 2 MB instead of 4.8."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def _contents(sections: Iterable[str]) -> str:
    """A list of links to the sections of the page, in their order."""
    heading = re.compile(r'<section[^>]* id="([^"]+)"[^>]*><h2>(.*?)</h2>')
    found = [match for section in sections if (match := heading.match(section))]
    links = "".join(f'<li><a href="#{match[1]}">{match[2]}</a></li>' for match in found)
    return f'<nav class="contents" aria-label="Contents"><ol>{links}</ol></nav>' if links else ""


def _facts(run_data: RunData) -> str:
    """Data, net, date, duration and machine, in a line each."""
    facts = dict(run_data.metadata.facts)
    trials = run_data.trials
    if {"start", "end"} <= set(trials) and trials["end"].notna().any():
        seconds = (trials["end"].max() - trials["start"].min()).total_seconds()
        facts["took"] = f"{clock(seconds)} from the first trial to the last"
    rows = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items())
    return f'<dl class="facts about">{rows}</dl>' if rows else ""


def _arms(metadata: RunCard) -> str:
    """What each arm is, what its trials draw, and what they may spend."""
    rows = [
        [
            arm.name,
            f"{arm.what} {arm.budget_note}".strip(),
            arm.space or NOTHING,
            arm.trials_per_seed,
            f"{arm.passes:,}" if arm.passes else "varies",
            len(arm.seeds),
        ]
        for arm in metadata.arms
    ]
    headers = ["arm", "what it is", "what its trials draw", "trials per replicate"]
    table = rendering.Table.of_rows(
        [*headers, "passes per trial", "replicates"],
        rows,
        prose=headers[1:3],
        numbers=[headers[3], "passes per trial", "replicates"],
    )
    html = re.sub("`(.+?)`", r"<code>\1</code>", rendering.to_html(table))
    return f'<section id="arms" class="arms"><h2>The arms</h2>{html}</section>'


def _words() -> str:
    """Return the glossary, folded away until somebody opens it."""
    code = r"<code>\1</code>"
    items = "".join(
        f"<dt>{escape(word)}</dt><dd>{re.sub('`(.+?)`', code, escape(meaning))}</dd>"
        for word, meaning in GLOSSARY.items()
    )
    return (
        f'<details class="words"><summary>Words used here</summary><dl class="facts">{items}</dl>'
        "</details>"
    )


def _tables(run_data: RunData) -> list[str]:
    parts = [
        f'<section id="table-{address(table.heading).lower()}"><h2>{escape(table.heading)}</h2>'
        f"{rendering.to_html(table)}</section>"
        for table in run_data.tables
    ]
    return [*parts, _download("table.csv", to_csv(run_data.summary, run_data.metadata))]


def _verdicts(run_data: RunData) -> list[str]:
    return [
        f'<section id="verdict-{address(table.heading).lower()}"><h2>{escape(table.heading)}</h2>'
        f"{rendering.to_html(table)}</section>"
        for table in run_data.comparisons
    ]


def _figure(name: str, drawing: Drawing | Note) -> str:
    title, name = escape(drawing.title), escape(name)
    if isinstance(drawing, Note):
        text = escape(drawing.text)
        return f'<section id="{name}"><h2>{title}</h2><p class="missing">{text}</p></section>'
    width = f' style="min-width:{drawing.min_width}px"' if drawing.min_width else ""
    height = int(drawing.figure.layout.height)
    # Inside a script element only "<" could end it or open a comment.
    data = drawing.figure.to_json().replace("<", "\\u003c")
    csv = drawing.data.to_csv(index=False, lineterminator="\n")
    # What the buttons do stands in page.js.
    save = f' <button type="button" data-save="{name}">figure as SVG</button>'
    alone = f' <button type="button" data-alone="{name}">figure alone</button>'
    if any(trace.visible == "legendonly" for trace in drawing.figure.data):
        alone += f' <button type="button" data-all="{name}">all arms</button>'
    return (
        f'<section class="figure" id="{name}"><h2>{title}</h2><div class="wide">'
        f'<div class="plot" id="plot-{name}"{width}>'
        f'<div class="room" style="height:{height}px"></div></div></div>'
        f'<script type="application/json" data-for="{name}">{data}</script>'
        f"<p class='caption'>{escape(drawing.caption)}</p>"
        f"{_download(f'{name}.csv', csv, more=save + alone)}</section>"
    )


def _troubles(trials: pd.DataFrame) -> str:
    rows = trials[~trials["outcome"].isin({*OUTCOMES, NOT_STARTED} - {"failed"})]
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
    listed = f'<ul class="troubles">{"".join(items)}</ul>{rest}'
    return f'<section id="troubles"><h2>{heading}</h2>{listed}</section>'


def _notes(notes: str) -> str:
    paragraphs = [escape(text.strip()) for text in notes.split("\n\n") if text.strip()]
    if not paragraphs:
        return ""
    body = "".join(f"<p>{text}</p>" for text in paragraphs)
    return f'<section id="notes"><h2>What differs from the paper</h2>{body}</section>'


def _provenance(run_data: RunData) -> str:
    metadata = run_data.metadata
    facts = {
        "command": metadata.command,
        **{f"extended ({n})": told for n, told in enumerate(metadata.history, start=1)},
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
    return (
        f'<section id="origin"><h2>Where it comes from</h2><dl class="facts">{rows}</dl></section>'
    )


def _download(name: str, csv: str, *, more: str = "") -> str:
    data = base64.b64encode(csv.encode()).decode()
    return (
        f'<p class="download"><a download="{escape(name)}" '
        f'href="data:text/csv;charset=utf-8;base64,{data}">data as CSV</a>{more}</p>'
    )
