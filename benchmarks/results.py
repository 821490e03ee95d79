"""What a benchmark returns, and how it is printed."""

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any, TypeAlias

from tuneparts.cli._output import terminal
from tuneparts.core import provenance
from tuneparts.results import rendering
from tuneparts.results.rendering import Table

Row: TypeAlias = dict[str, Any]
Result: TypeAlias = dict[str, Any]
"""`bench`, `ratios` (name -> number), `rows` and `machine`, ready for JSON."""
_PACKAGES = ("tuneparts", "torch", "ray", "mlflow", "optuna")


def result(name: str, ratios: Mapping[str, float], rows: Sequence[Row]) -> Result:
    """Put ratios and rows next to a description of this machine: processor, load and versions."""
    machine = {
        "cpu": provenance.cpu_model(),
        "cores": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "system": platform.platform(),
        "python": platform.python_version(),
        **{package: metadata.version(package) for package in _PACKAGES},
    }
    return {"bench": name, "ratios": dict(ratios), "rows": list(rows), "machine": machine}


def tell(row: Mapping[str, Any]) -> None:
    """Print a row on standard error as soon as it is measured."""
    cells = ", ".join(f"{key} {_cell(value)}" for key, value in row.items())
    print(cells, file=sys.stderr, flush=True)


def show(found: Result, *, as_json: bool) -> None:
    """Print a result: one JSON object, or a table of ratios and one of rows."""
    if as_json:
        print(json.dumps(found))
        return
    console = terminal()
    ratios = [[name, f"{ratio:.3f}"] for name, ratio in found["ratios"].items()]
    heading = f"benchmark {found['bench']}"
    columns = list(dict.fromkeys(key for row in found["rows"] for key in row))
    rows = [[_cell(row.get(column, "")) for column in columns] for row in found["rows"]]
    numbers = [
        column
        for column in columns
        if all(isinstance(row.get(column, 0.0), int | float) for row in found["rows"])
    ]
    rendering.show(
        console,
        Table.of_rows(["ratio", "value"], ratios, heading=heading, numbers=["value"]),
        Table.of_rows(columns, rows, numbers=numbers),
    )
    machine = ", ".join(f"{key} {value}" for key, value in found["machine"].items())
    console.print(machine, highlight=False)


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_cell(one)}" for key, one in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)
