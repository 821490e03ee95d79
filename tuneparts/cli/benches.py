"""`tuneparts bench`: measurements as ratios to what one would run instead."""

import contextlib
import importlib
import json
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from tuneparts.errors import UnknownNameError

BENCHES = {
    "complexity": "time and memory of partitioned, Augerino and Laplace steps against width",
    "partition": "a partitioned weight, hyper and mixed step against a standard step",
    "pwfn": "a round of fixing against its literal form, and a step with Gaussian weights",
    "search": "a trial through our runner, stock Ray Tune and Optuna",
    "superweights": "a step with composed weights against ordinary ones, and composing alone",
    "tracking": "a point through our writer and Ray's MLflow callback",
}


def bench(name: str | None, *, as_json: bool, quick: bool) -> None:
    """Run one bench, or list them."""
    console = Console()
    if name is None:
        table = Table("bench", "what it measures")
        for one, meaning in BENCHES.items():
            table.add_row(one, meaning)
        console.print(table)
        return
    if name not in BENCHES:
        raise UnknownNameError("bench", name, BENCHES)
    run = importlib.import_module(f"tuneparts.bench.{name}").run
    with contextlib.redirect_stdout(sys.stderr), Console(stderr=True).status(f"bench {name}"):
        result: Mapping[str, Any] = run(quick=quick)
    if as_json:
        print(json.dumps(result))
        return
    _print(console, result)


def _print(console: Console, result: Mapping[str, Any]) -> None:
    ratios = Table("ratio", "value", title=f"bench {result['bench']}")
    for key, value in result["ratios"].items():
        ratios.add_row(key, f"{value:.3f}")
    console.print(ratios)
    columns = list(dict.fromkeys(key for row in result["rows"] for key in row))
    rows = Table(*columns)
    for row in result["rows"]:
        rows.add_row(*[_cell(row.get(column, "")) for column in columns])
    console.print(rows)
    console.print(", ".join(f"{k} {v}" for k, v in result["machine"].items()), highlight=False)


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
