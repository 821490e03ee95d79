"""The arms' tables: built once from the summary, rendered for terminal, Markdown, CSV and LaTeX."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pandas as pd
from rich import box
from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from tuneparts import schema
from tuneparts.reports.metadata import ReportMetadata
from tuneparts.reports.select import BYTES, OUTCOMES, SCORED

MEGABYTE = 1e6
NOTHING = "\N{EN DASH}"
_LATEX = {
    **{char: f"\\{char}" for char in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    NOTHING: "--",
}
_ARROWS = {schema.Direction.UP: " ↑", schema.Direction.DOWN: " ↓", schema.Direction.NONE: ""}


@dataclass(frozen=True)
class Cell:
    """What stands in one place of a table."""

    text: str
    is_best: bool = False


@dataclass(frozen=True)
class Column:
    """A header with a cell per arm."""

    header: str
    cells: tuple[Cell, ...]
    is_number: bool = True
    detail: int = 0
    """Where the room is narrow the largest go first; 0 always stays."""
    may_wrap: bool = False
    """Whether its cells may break between words."""

    @property
    def width(self) -> int:
        """Characters that the column needs; headers may break between words."""
        cells = [cell.text for cell in self.cells]
        texts = [word for cell in cells for word in cell.split()] if self.may_wrap else cells
        return max(len(text) for text in [*self.header.split(), *texts])


@dataclass(frozen=True)
class Table:
    """Columns with what must be read beside them: failures, meaning, provenance."""

    title: str
    columns: tuple[Column, ...]
    notes: tuple[str, ...]
    provenance: str

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        """The cells, arm by arm."""
        return list(zip(*(column.cells for column in self.columns), strict=True))


def build(summary: pd.DataFrame, metadata: ReportMetadata) -> list[Table]:
    """The table of scores and costs, and those of hypers and communication where there are any."""
    records = summary.to_dict("records")
    arm = Column("arm", tuple(Cell(str(row["arm"])) for row in records), is_number=False)
    tests = [name for name in _metrics(summary) if name.startswith(SCORED)]
    hypers = [name for name in _metrics(summary) if name.startswith("hyper/")]
    single = [name for name in hypers if name in schema.METRICS]
    scores = [_scores(summary, name, detail=2 * position) for position, name in enumerate(tests)]
    if scores:
        scores[0] = _with_failures(scores[0], summary)
    if metadata.metric:
        scores.append(_scores(summary, metadata.metric, detail=3))
    tables = [
        Table(
            f"{metadata.name}: scores and costs",
            (arm, *scores, *_counts(summary), *_costs(summary)),
            tuple(_notes(summary, metadata)),
            provenance(metadata),
        )
    ]
    if hypers:
        hidden = len(hypers) - len(single)
        note = "Hypers of the selected trials: mean ± standard error over seeds."
        more = f" {hidden} values of families such as `{hypers[-1]}` are in the CSV file only."
        tables.append(
            Table(
                f"{metadata.name}: hypers",
                (arm, *(_scores(summary, name) for name in single)),
                (note + (more if hidden else ""),),
                provenance(metadata),
            )
        )
    if BYTES in summary:
        tables.append(_communication(summary, metadata, arm))
    return tables


def provenance(metadata: ReportMetadata) -> str:
    """Where the numbers come from: parent run, digest of the search, commit of the code."""
    parts = {"run": metadata.parent_run_id, "digest": metadata.digest, "commit": metadata.commit}
    return " · ".join(f"{name} {value or 'unknown'}" for name, value in parts.items())


def label(name: str, *, arrow: bool = False) -> str:
    """A metric's name for people: `test accuracy`, `rotation (rad)`."""
    metric = schema.lookup(name)
    family, quantity = name.split("/", 1)
    words = quantity if family in {"hyper", "cost"} else f"{family} {quantity}"
    unit = f" ({metric.unit})" if metric.unit and metric.unit != quantity else ""
    return words.replace("_", " ") + unit + (_ARROWS[metric.direction] if arrow else "")


def number(value: float, decimals: int) -> str:
    """A number with thousands separators; a dash where there is none."""
    return NOTHING if math.isnan(value) else f"{value:,.{decimals}f}"


def spread(mean: float, se: float, decimals: int) -> str:
    """`mean ± se`; the mean alone where one value leaves no error."""
    text = number(mean, decimals)
    return text if math.isnan(se) else f"{text} ± {number(se, decimals)}"


def to_rich(tables: Sequence[Table], width: int | None = None) -> list[Group]:
    """For the terminal; details give way where `width` characters do not hold them."""
    rendered = []
    for table in tables:
        columns = _fitting(table.columns, width)
        left_out = [column.header for column in table.columns if column not in columns]
        notes = [*table.notes, table.provenance]
        if left_out:
            notes.append(f"Left out for width: {', '.join(left_out)}.")
        out = RichTable(box=box.SIMPLE_HEAD, title=Text(table.title), title_justify="left")
        for column, room in zip(columns, _widths(columns, width), strict=True):
            justify: Literal["left", "right"] = "right" if column.is_number else "left"
            out.add_column(Text(column.header), justify=justify, width=room)
        for row in zip(*(column.cells for column in columns), strict=True):
            out.add_row(*(Text(cell.text, style="bold" if cell.is_best else "") for cell in row))
        rendered.append(Group(out, *(Text(note, style="dim") for note in notes)))
    return rendered


def _fitting(columns: Sequence[Column], width: int | None) -> list[Column]:
    kept = list(columns)
    while width is not None and _needed(kept) > width:
        worst = max(kept, key=lambda column: column.detail)
        if worst.detail == 0:
            break
        kept.remove(worst)
    return kept


def _needed(columns: Sequence[Column]) -> int:
    return sum(column.width + 3 for column in columns) + 1


def _widths(columns: Sequence[Column], width: int | None) -> list[int]:
    """Characters per column: its need, and of what is left over as much as it can use."""
    slack = math.inf if width is None else max(width - _needed(columns), 0)
    rooms = {column.header: column.width for column in columns}
    for column in sorted(columns, key=lambda column: not column.may_wrap):
        texts = [column.header, *(cell.text for cell in column.cells)]
        extra = int(min(max(len(text) for text in texts) - column.width, slack))
        slack -= extra
        rooms[column.header] += extra
    return [rooms[column.header] for column in columns]


def to_markdown(tables: Sequence[Table]) -> str:
    """Pipe tables with their notes below."""
    parts = []
    for table in tables:
        lines = [
            f"**{_markdown(table.title)}**\n",
            "| " + " | ".join(_markdown(column.header) for column in table.columns) + " |",
            "|" + "|".join("---:" if column.is_number else "---" for column in table.columns) + "|",
        ]
        for row in table.rows:
            cells = (
                f"**{_markdown(cell.text)}**" if cell.is_best else _markdown(cell.text)
                for cell in row
            )
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
        lines += [f"- {_markdown(note)}" for note in (*table.notes, table.provenance)]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def to_latex(tables: Sequence[Table]) -> str:
    """One booktabs tabular per table, with notes and provenance as comments below."""
    parts = []
    for table in tables:
        shape = "".join("r" if column.is_number else "l" for column in table.columns)
        lines = [f"\\begin{{tabular}}{{{shape}}}", "\\toprule"]
        lines.append(" & ".join(_latex(column.header) for column in table.columns) + r" \\")
        lines.append("\\midrule")
        for row in table.rows:
            cells = (
                f"\\textbf{{{_latex(cell.text)}}}" if cell.is_best else _latex(cell.text)
                for cell in row
            )
            lines.append(" & ".join(cells) + r" \\")
        lines += ["\\bottomrule", "\\end{tabular}"]
        lines += [
            f"% {line}" for note in (*table.notes, table.provenance) for line in note.splitlines()
        ]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def to_csv(summary: pd.DataFrame, metadata: ReportMetadata) -> str:
    """The whole summary at full precision, with provenance in each row."""
    return summary.assign(
        parent_run_id=metadata.parent_run_id, digest=metadata.digest, commit=metadata.commit
    ).to_csv(index=False, lineterminator="\n")


def _metrics(summary: pd.DataFrame) -> list[str]:
    return [str(name).removesuffix(":se") for name in summary if str(name).endswith(":se")]


def _scores(summary: pd.DataFrame, name: str, *, detail: int = 0) -> Column:
    metric = schema.lookup(name)
    texts = []
    for row in summary.to_dict("records"):
        text = spread(row[name], row[f"{name}:se"], metric.decimals)
        is_partial = 0 < row[f"{name}:n"] < row["seeds"]
        texts.append(text + (f" (n={row[f'{name}:n']})" if is_partial else ""))
    best = _best(summary[name], metric) if name.startswith(("test/", "corrupted/")) else None
    cells = (
        Cell(text, is_best=best is not None and number(mean, metric.decimals) == best)
        for text, mean in zip(texts, summary[name], strict=True)
    )
    return Column(label(name, arrow=True), tuple(cells), detail=detail)


def _best(means: "pd.Series[float]", metric: schema.Metric) -> str | None:
    """The best mean as printed, so that arms that print alike are bold alike."""
    finite = means[means.notna()]
    if finite.empty or metric.direction is schema.Direction.NONE:
        return None
    is_up = metric.direction is schema.Direction.UP
    return number(float(finite.max() if is_up else finite.min()), metric.decimals)


def _with_failures(column: Column, summary: pd.DataFrame) -> Column:
    """Say in the first score's place why an arm has none."""
    cells = []
    for cell, row in zip(column.cells, summary.to_dict("records"), strict=True):
        is_empty = row["seeds"] == 0
        cells.append(Cell(_state(row, of=f"/{row['expected']}")) if is_empty else cell)
    return replace(column, cells=tuple(cells))


def _state(row: Mapping[Hashable, object], of: str = "") -> str:
    kinds = ["failed", "missing", "unfinished", "stopped", "unscored"]
    parts = [f"{kind}: {row[kind]}{of}" for kind in kinds if row[kind]]
    return ", ".join(parts) or "no finished trial"


def _counts(summary: pd.DataFrame) -> list[Column]:
    seeds, trials = [], []
    for row in summary.to_dict("records"):
        seeds.append(Cell(f"{row['seeds']}/{row['seeds_expected']}"))
        rest = [
            f"{row[kind]} {kind}"
            for kind in (*OUTCOMES[1:], "unfinished", "missing", "unscored")
            if row[kind]
        ]
        text = f"{row['finished']}/{row['expected']}"
        trials.append(Cell(f"{text} ({', '.join(rest)})" if rest else text))
    return [Column("seeds", tuple(seeds)), Column("trials finished", tuple(trials), may_wrap=True)]


def _costs(summary: pd.DataFrame) -> list[Column]:
    columns = []
    for name, decimals in (("passes", 0), ("seconds", 1)):
        cells = (Cell(number(value, decimals)) for value in summary[name])
        detail = 5 if name == "seconds" else 0
        columns.append(Column(f"{name} per seed", tuple(cells), detail=min(detail, 1)))
        if summary["follows"].astype(bool).any():
            total = (Cell(number(value, decimals)) for value in summary[f"{name}_with_leader"])
            columns.append(Column(f"{name} incl. leader", tuple(total), detail=detail))
    return columns


def _communication(summary: pd.DataFrame, metadata: ReportMetadata, arm: Column) -> Table:
    """What the selected trials sent, beside federated averaging where an arm of it ran alone."""
    plain = [a.name for a in metadata.arms if a.method == "fedavg" and a.trials_per_seed == 1]
    columns = [
        _column(summary, "federated/rounds", "rounds", 1.0, 0),
        _column(summary, "communication/up", "up (MB)", MEGABYTE, 2),
        _column(summary, "communication/down", "down (MB)", MEGABYTE, 2),
        _column(summary, BYTES, "sent (MB)", MEGABYTE, 2),
    ]
    note = "Mean over seeds of the selected trials"
    if plain:
        usual = float(summary.loc[summary["arm"] == plain[0], BYTES].iloc[0])
        columns.append(_column(summary, BYTES, f"% of {plain[0]}", usual / 100, 1))
        note += f"; per cent of what {plain[0]} sent in its rounds"
    columns += [
        _column(summary, "bytes", "sent per seed (MB)", MEGABYTE, 2),
        _column(summary, "federated/dropped", "clients dropped", 1.0, 1),
    ]
    note += ". `sent per seed` is what all trials of a seed sent, with those of its leaders."
    return Table(f"{metadata.name}: communication", (arm, *columns), (note,), provenance(metadata))


def _column(summary: pd.DataFrame, name: str, header: str, unit: float, decimals: int) -> Column:
    values = summary[name] / unit
    return Column(header, tuple(Cell(number(float(value), decimals)) for value in values))


def _notes(summary: pd.DataFrame, metadata: ReportMetadata) -> list[str]:
    chosen = (
        f"of the trial selected by {metadata.metric} within each seed" if metadata.metric else ""
    )
    notes = [
        f"Mean ± standard error over seeds {chosen}".rstrip()
        + "; passes and seconds are what all trials of a seed cost."
    ]
    for arm, row in zip(metadata.arms, summary.to_dict("records"), strict=True):
        if row["failed"] or row["missing"] or row["unfinished"] or row["unscored"]:
            error = f"; first error: {row['first_error']}" if row["first_error"] else ""
            notes.append(f"{arm.name}: {_state(row)} of {row['expected']} trials{error}.")
        if arm.budget_note:
            notes.append(f"{arm.name}: {arm.budget_note}.")
    return notes


def _markdown(text: str) -> str:
    for char in "\\`*_|<>[]":
        text = text.replace(char, f"\\{char}")
    return " ".join(text.split())


def _latex(text: str) -> str:
    return "".join(_LATEX.get(char, char) for char in text)
