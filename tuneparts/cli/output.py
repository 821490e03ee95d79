"""How verbs print: tables for people, and the same rows as JSON or CSV for programs."""

import csv
import io
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tuneparts.core.errors import ConfigError

if TYPE_CHECKING:
    from tuneparts.results.rendering import Table

PIPE_WIDTH = 1000
"""Characters of a line where no terminal limits it: no table leaves a column out or breaks."""


class Form(StrEnum):
    """For whom a verb prints."""

    TABLE = "table"
    """People, at the width of their terminal."""
    JSON = "json"
    """Programs: one object."""
    CSV = "csv"
    """Programs: the rows of one table, under a line of names."""

    @classmethod
    def of(cls, *, as_json: bool, as_csv: bool) -> "Form":
        """What `--json` and `--csv` ask for.

        Raises:
            ConfigError: Both at once.
        """
        if as_json and as_csv:
            raise ConfigError("one form is printed at a time, but got `--json` and `--csv`.")
        return cls.JSON if as_json else cls.CSV if as_csv else cls.TABLE


def terminal(form: Form = Form.TABLE) -> Console:
    """Where people read: stdout; or stderr, where stdout is a program's."""
    is_aside = form is not Form.TABLE
    stream = sys.stderr if is_aside else sys.stdout
    is_unlimited = not stream.isatty() and "COLUMNS" not in os.environ
    return Console(stderr=is_aside, width=PIPE_WIDTH if is_unlimited else None)


def write(form: Form, name: str, rows: Sequence[Mapping[str, Any]], /, **facts: Any) -> None:
    """Print rows for a program.

    Args:
        form: JSON or CSV.
        name: what the rows are, the key of the JSON object that holds them.
        rows: a value for each name; those of the first row are the columns of CSV.
        facts: what else the JSON object says.
    """
    if form is Form.JSON:
        print(json.dumps(_plain({**facts, name: list(rows)})))
        return
    out = io.StringIO()
    columns = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _cell(value) for key, value in row.items()})
    print(out.getvalue(), end="")


def records(table: "Table") -> list[dict[str, Any]]:
    """The rows of a table by their headers; cells of columns of numbers are numbers, if they can.

    Example:
        >>> from tuneparts.results.rendering import Table
        >>> records(Table.of_rows(["arm", "passes"], [["a", "1,200"]], numbers=["passes"]))
        [{'arm': 'a', 'passes': 1200}]
    """
    return [
        {
            column.header: _number(cell) if column.is_number else cell
            for column, cell in zip(table.columns, row, strict=True)
        }
        for row in table.rows
    ]


def _number(text: str) -> Any:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return text or None
    return int(value) if value.is_integer() and "." not in text else value


def _plain(value: Any) -> Any:
    """A value as JSON has it: no NaN, and text for what it does not know."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(one) for one in value]
    if hasattr(value, "item"):  # of numpy
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _cell(value: Any) -> Any:
    plain = _plain(value)
    return json.dumps(plain) if isinstance(plain, dict | list) else plain
