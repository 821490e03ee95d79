"""`tuneparts bench`: measurements as ratios to what one would run instead."""

import contextlib
import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from tuneparts.cli.output import Form, terminal, write
from tuneparts.errors import ConfigError, UnknownNameError
from tuneparts.reports import rendering
from tuneparts.reports.rendering import Table

BENCHES = {
    "algorithms": "regret of every search algorithm beside Optuna's and Ray's, nothing trained",
    "complexity": "time and memory of partitioned, Augerino and Laplace steps against width",
    "data": "images read from disk beside torchvision's ImageFolder in a DataLoader",
    "partition": "a partitioned weight, hyper and mixed step against a standard step",
    "pwfn": "a round of fixing against its literal form, and a step with Gaussian weights",
    "search": "trials, barriers and the start of a search beside stock Ray Tune and Optuna",
    "step": "our training step beside one written by hand, and beside a matrix product",
    "superweights": "a step with composed weights against ordinary ones, and composing alone",
    "timing": "wall clock of adaptive searches on 8 and 32 slots beside stock Ray Tune",
    "tracking": "a point through our writer and Ray's MLflow callback",
}


def bench(
    name: str | None,
    *,
    form: Form = Form.TABLE,
    quick: bool,
    only: str | None = None,
    simulate: bool = False,
    trials: int | None = None,
    plot: Path | None = None,
) -> None:
    """Run one bench, or list them.

    Args:
        name: the bench; None lists them.
        form: for people or for programs.
        quick: smaller, for trying out.
        only: of `search`, one of its cases.
        simulate: of `search`, many trials that sleep.
        trials: how many of them.
        plot: of `complexity`, the `.html` or `.svg` file to draw into.
    """
    console = terminal(form)
    if name is None:
        headers = ["bench", "what it measures"]
        if form is not Form.TABLE:
            write(
                form, "benches", [dict(zip(headers, row, strict=True)) for row in BENCHES.items()]
            )
            return
        rendering.show(console, Table.of_rows(headers, BENCHES.items(), prose=headers[1:]))
        return
    if name not in BENCHES:
        raise UnknownNameError("bench", name, BENCHES)
    options: dict[str, Any] = {"quick": quick}
    module = name
    if simulate or trials is not None:
        _belongs("--simulate or --trials", "search", name)
        module = "scale"
        options |= {"trials": trials, "report": _report}
    if only is not None:
        _belongs("--only", "search", name)
        options["only"] = only
    if plot is not None:
        from tuneparts.cli import plots

        _belongs("--plot", "complexity", name)
        plots.check(plot)
    run = importlib.import_module(f"tuneparts.bench.{module}").run
    with contextlib.redirect_stdout(sys.stderr), Console(stderr=True).status(f"bench {name}"):
        result: Mapping[str, Any] = run(**options)
    if plot is not None:
        import pandas as pd

        from tuneparts.reports.figures.complexity import complexity

        plots.write(plot, complexity(pd.DataFrame(result["rows"])))
    show(result, form)


def show(result: Mapping[str, Any], form: Form) -> None:
    """Print the result of a bench: tables, one JSON object, or its rows as CSV."""
    if form is Form.JSON:
        print(json.dumps(result))
    elif form is Form.CSV:
        write(form, "rows", result["rows"])
    else:
        _print(terminal(), result)


def _belongs(option: str, owner: str, name: str) -> None:
    if name != owner:
        raise ConfigError(f"{option} belongs to `bench {owner}`, not to `bench {name}`.")


def _report(run: Any) -> None:
    """Make a run's report, as `tuneparts report` does, without a word."""
    from tuneparts import api

    api.Results(run).write_report()


def _print(console: Console, result: Mapping[str, Any]) -> None:
    ratios = [[key, f"{value:.3f}"] for key, value in result["ratios"].items()]
    heading = f"bench {result['bench']}"
    rendering.show(
        console, Table.of_rows(["ratio", "value"], ratios, heading=heading, numbers=["value"])
    )
    columns = list(dict.fromkeys(key for row in result["rows"] for key in row))
    rows = [[_cell(row.get(column, "")) for column in columns] for row in result["rows"]]
    numbers = [
        column
        for column in columns
        if all(isinstance(row.get(column, 0.0), int | float) for row in result["rows"])
    ]
    rendering.show(console, Table.of_rows(columns, rows, numbers=numbers))
    console.print(", ".join(f"{k} {v}" for k, v in result["machine"].items()), highlight=False)


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
