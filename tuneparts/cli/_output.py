"""How verbs print: tables for people, and the same rows as JSON or CSV for programs."""

import csv
import json
import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from pydantic_core import to_jsonable_python
from rich.console import Console

from tuneparts.core.errors import ConfigError
from tuneparts.results.rendering import Table, show

PIPE_WIDTH = 1000
"""Characters of a line where no terminal limits it: no table leaves a column out or breaks."""


class Form(StrEnum):
    """A table for people at the width of their terminal; one object or rows for programs."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"

    @classmethod
    def of(cls, *, as_json: bool, as_csv: bool) -> "Form":
        if as_json and as_csv:
            raise ConfigError("--json, --csv: both are given. Leave one out.")
        return cls.JSON if as_json else cls.CSV if as_csv else cls.TABLE


def terminal(form: Form = Form.TABLE) -> Console:
    """Where people read: stdout; or stderr, where stdout is a program's."""
    is_aside = form is not Form.TABLE
    is_limited = (sys.stderr if is_aside else sys.stdout).isatty() or "COLUMNS" in os.environ
    width = None if is_limited else PIPE_WIDTH
    return Console(stderr=is_aside, width=width, highlight=False, markup=False)


def put(
    form: Form,
    name: str,
    rows: Sequence[Mapping[str, Any]],
    hint: str = "",
    /,
    *,
    prose: Sequence[str] = (),
    numbers: Sequence[str] = (),
    **facts: Any,
) -> None:
    """Print rows in any form: as a table with a hint below, or as `write` does."""
    if form is not Form.TABLE:
        write(form, name, rows, **facts)
        return
    cells = [[_text(value) for value in row.values()] for row in rows]
    show(terminal(), Table.of_rows(list(rows[0]), cells, prose=prose, numbers=numbers))
    if hint:
        terminal().print(hint)


def write(form: Form, name: str, rows: Sequence[Mapping[str, Any]], /, **facts: Any) -> None:
    """Print rows for a program: under their name in a JSON object with other facts, or as CSV."""
    plain = to_jsonable_python(  # without NaN
        {**facts, name: list(rows)},
        inf_nan_mode="null",
        fallback=lambda value: value.item() if hasattr(value, "item") else str(value),  # of numpy
    )
    if form is Form.JSON:
        print(json.dumps(plain))
        return
    columns = list(dict.fromkeys(key for row in plain[name] for key in row))
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    for row in plain[name]:
        texts = {k: json.dumps(v) if isinstance(v, dict | list) else v for k, v in row.items()}
        writer.writerow(texts)


def _text(value: Any) -> str:
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:g}"
    return "" if value is None else str(value)
