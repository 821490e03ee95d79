"""A table of text, and its renderings for the terminal, Markdown, LaTeX and HTML.

No rendering ever cuts a name, a number or a path. Where a terminal is too narrow, columns of detail
are left out and named below the table; the others continue in a second block below the first; and
where not even two columns fit, each row becomes a list of its cells.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Column
from rich.table import Table as RichTable
from rich.text import Text

NOTHING = "\N{EN DASH}"
"""Stands where a number is missing."""
_PROSE_WIDTH = 28
"""Characters to which a column of sentences may shrink before the table is laid out otherwise."""
_MAX_ROOMY = 9
"""Columns that fit a web page in ordinary letters; wider tables are set smaller."""
_LATEX = str.maketrans(
    {
        **{char: f"\\{char}" for char in "&%$#_{}"}, NOTHING: "--", "±": r"$\pm$",
        "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
        "↑": r"$\uparrow$", "↓": r"$\downarrow$",
    }
)  # fmt: skip


class _Bold(str):
    """A cell that stands out."""


@dataclass(frozen=True)
class _Column:
    """A header and a cell for each row."""

    header: str
    cells: tuple[str, ...]
    is_number: bool = True
    detail: int = 0
    """Columns with the largest value are left out first where room is short; 0 always stays."""
    wraps_at: int = 0
    """Cells may break between words, but not into fewer characters than this; 0 never breaks."""
    tip: str = ""
    """What the header means; HTML shows it when the pointer rests on the header."""

    @property
    def min_width(self) -> int:
        """Characters that the column needs at least; headers may break between words."""
        widest = max(map(cell_len, self.cells), default=0)
        if self.wraps_at:
            words = max((cell_len(word) for cell in self.cells for word in cell.split()), default=0)
            widest = min(widest, max(words, self.wraps_at))
        return max([widest, *map(cell_len, self.header.split())])


@dataclass(frozen=True)
class Table:
    """Columns of equal length under a heading, with notes; the first column names the rows."""

    heading: str
    columns: tuple[_Column, ...]
    notes: tuple[str, ...] = ()
    subject: str = ""
    """What the table is about, such as the name of a search; stands before the heading."""

    @classmethod
    def of_rows(
        cls,
        headers: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        heading: str = "",
        numbers: Collection[str] = (),
        prose: Collection[str] = (),
        details: Mapping[str, int] | None = None,
        notes: Sequence[str] = (),
    ) -> "Table":
        """Build a table from rows of values; cells of `prose` may break between words."""
        cells = [[one if isinstance(one, str) else str(one) for one in row] for row in rows]
        columns = (
            _Column(
                header, tuple(row[position] for row in cells), is_number=header in numbers,
                detail=(details or {}).get(header, 0),
                wraps_at=_PROSE_WIDTH if header in prose else 0,
            )
            for position, header in enumerate(headers)
        )  # fmt: skip
        return cls(heading, tuple(columns), tuple(notes))

    @property
    def title(self) -> str:
        """The heading, after the subject where there is one: `rotated_digits: costs`."""
        below = f"{self.subject}: {self.heading[:1].lower()}{self.heading[1:]}"
        return below if self.subject else self.heading

    @property
    def rows(self) -> list[tuple[str, ...]]:
        return list(zip(*(column.cells for column in self.columns), strict=True))


def show(console: Console, *tables: Table) -> None:
    """Print tables on a terminal, at its width."""
    for table in tables:
        console.print(_to_rich(table, console.width))


def _to_rich(table: Table, width: int) -> Group:
    """Lay a table out for a terminal of `width` characters; see the top of this file."""
    columns, notes = list(table.columns), list(table.notes)
    while _needed(columns) > width and any(column.detail for column in columns):
        # Of columns with the same detail the last goes first.
        columns.remove(max(reversed(columns), key=lambda column: column.detail))
    if left_out := [column.header for column in table.columns if column not in columns]:
        notes.append(f"Left out for width: {', '.join(left_out)}.")
    blocks = [columns[:1]]  # columns that fit side by side, each block with the first column
    for column in columns[1:]:
        if len(blocks[-1]) > 1 and _needed([*blocks[-1], column]) > width:
            blocks.append(columns[:1])
        blocks[-1].append(column)
    parts: list[RenderableType] = [Text(table.title, style="italic")] if table.heading else []
    if all(_needed(block) <= width for block in blocks):
        parts += [_side_by_side(block, width) for block in blocks]
    else:
        parts += _as_lists(columns, width)
    return Group(*parts, *(Text(note, style="dim") for note in notes))


def _needed(columns: Sequence[_Column]) -> int:
    # A space on both sides of each column, and the lines between and around them.
    return sum(column.min_width + 3 for column in columns) + 1


def _side_by_side(columns: Sequence[_Column], width: int) -> RenderableType:
    slack = width - _needed(columns)
    rooms = [column.min_width for column in columns]
    # Of what is left over, cells that would break get room before headers that would.
    for i in sorted(range(len(columns)), key=lambda i: not columns[i].wraps_at):
        unbroken = max(map(cell_len, (columns[i].header, *columns[i].cells)))
        extra = min(unbroken - rooms[i], slack)
        slack -= extra
        rooms[i] += extra
    out = RichTable(box=box.SIMPLE_HEAD)
    for column, room in zip(columns, rooms, strict=True):
        justify: Literal["left", "right"] = "right" if column.is_number else "left"
        out.add_column(Text(column.header), justify=justify, width=room)
    for row in zip(*(column.cells for column in columns), strict=True):
        out.add_row(*map(_rich_text, row))
    return out


def _as_lists(columns: Sequence[_Column], width: int) -> list[RenderableType]:
    """Each row as a list of `header value` lines, for names too long for two columns."""
    names = max(cell_len(column.header) for column in columns) + 2
    lines: list[RenderableType] = []
    for row in zip(*(column.cells for column in columns), strict=True):
        for column, cell in zip(columns, row, strict=True):
            header, text = Text(column.header, style="dim"), _rich_text(cell)
            parts = cell.split() if column.wraps_at else [cell]
            if max(map(cell_len, parts), default=0) <= width - names:
                line = RichTable.grid(Column(width=names), Column())
                line.add_row(header, text)
                lines.append(line)
            else:
                # Its own line; only a word wider than the terminal goes on in the next.
                lines += [header, Padding(text, (0, 0, 0, 2))]
        lines.append(Text())
    return lines


def _rich_text(cell: str) -> Text:
    return Text(cell, style="bold" if isinstance(cell, _Bold) else "")


def to_markdown(tables: Iterable[Table]) -> str:
    """Pipe tables with their notes below."""
    parts = []
    for table in tables:
        header, *rows = _texts(table, _markdown, "**{}**")
        rule = ["---:" if column.is_number else "---" for column in table.columns]
        lines = [f"**{_markdown(table.title)}**\n"] if table.heading else []
        lines += [f"| {' | '.join(header)} |", f"|{'|'.join(rule)}|"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        lines += ["", *(f"- {_markdown(note)}" for note in table.notes)] if table.notes else []
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _to_latex(tables: Iterable[Table]) -> str:
    """One booktabs tabular per table, with its notes as comments below."""
    parts = []
    for table in tables:
        shape = "".join("r" if column.is_number else "l" for column in table.columns)
        texts = _texts(table, lambda text: text.translate(_LATEX), r"\textbf{{{}}}")
        header, *rows = (" & ".join(row) + r" \\" for row in texts)
        lines = [f"\\begin{{tabular}}{{{shape}}}", "\\toprule", header, "\\midrule", *rows]
        lines += ["\\bottomrule", "\\end{tabular}"]
        lines += [f"% {line}" for note in table.notes for line in note.splitlines()]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _texts(table: Table, escaped: Callable[[str], str], bold: str) -> list[list[str]]:
    """The headers, then the cells row by row, as text of a markup language."""
    rows = [[column.header for column in table.columns], *table.rows]
    return [
        [bold.format(escaped(one)) if isinstance(one, _Bold) else escaped(one) for one in row]
        for row in rows
    ]


def _markdown(text: str) -> str:
    return " ".join(re.sub(r"([\\`*_|<>\[\]])", r"\\\1", text).split())


def _to_html(table: Table) -> str:
    """A table element and its notes; every text is escaped."""
    columns, head, rows = [], "", ""
    for column in table.columns:
        kind = ("num" if column.is_number else "name") + (" wrap" if column.wraps_at else "")
        tip = f' title="{escape(column.tip)}"' if column.tip else ""
        # The arrow stays with the last word where a header breaks.
        words = re.sub(r" (?=[↑↓])", "&nbsp;", escape(column.header))
        head += f'<th scope="col" class="{kind}"{tip}>{words}</th>'
        columns.append((kind, escape(column.header)))
    for row in table.rows:
        # A long name breaks after an underscore, not in a word.
        cells = f'<th scope="row">{escape(row[0]).replace("_", "_<wbr>")}</th>'
        for (kind, header), cell in zip(columns[1:], row[1:], strict=True):
            # A count stays with what it counts where a cell breaks.
            text = re.sub(r"(\d) ([a-z])|(±) ", r"\1\3&nbsp;\2", escape(cell))
            text = f"<b>{text}</b>" if isinstance(cell, _Bold) else text
            cells += f'<td class="{kind}" data-label="{header}">{text}</td>'
        rows += f"<tr>{cells}</tr>"
    dense = ' class="dense"' if len(table.columns) > _MAX_ROOMY else ""
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
    # A tab index makes it scrollable by the keyboard.
    return (
        f'<div class="wide" tabindex="0" role="group" aria-label="{escape(table.heading)}">'
        f"<table{dense}><thead><tr>{head}</tr></thead>"
        f'<tbody>{rows}</tbody></table></div><ul class="notes">{notes}</ul>'
    )
