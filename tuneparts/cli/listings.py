"""`tuneparts methods | searches | data`: what there is."""

import ast
import importlib.util
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Table

from tuneparts import catalog
from tuneparts.search import load


def methods() -> None:
    """Name, room and first sentence of every method."""
    table = Table("method", "what it is", "module")
    for name, target in catalog.METHODS.items():
        module = target.partition(":")[0]
        spec = importlib.util.find_spec(module)
        text = Path(spec.origin).read_text("utf-8") if spec is not None and spec.origin else ""
        docstring = ast.get_docstring(ast.parse(text)) or ""
        table.add_row(name, docstring.partition("\n\n")[0].replace("\n", " "), module)
    Console().print(table)


def searches() -> None:
    """Name and question of every search file."""
    table = Table("search", "question", "file")
    for file in load.available():
        table.add_row(file.name, file.question, str(file.path))
    console = Console()
    console.print(table)
    console.print("Run one: tuneparts search NAME [--scale smoke|cpu|paper] [--dry-run]")


def data(download: str | None) -> None:
    """Every data set and where it was found; fetches one when asked."""
    from tuneparts.data import sets  # brings torch

    console = Console()
    if download is not None:
        with Progress(SpinnerColumn(), TextColumn("fetching {task.description}")) as progress:
            progress.add_task(download)
            where = sets.download(download)
        console.print(f"{download} is in {where}")
    table = Table("set", "found in", "train", "test", "shape", "classes", "to get it")
    for row in sets.inventory():
        shape = "" if row.shape is None else "x".join(map(str, row.shape))
        counts = ["" if n is None else f"{n:,}" for n in (row.num_train, row.num_test)]
        classes = "" if row.num_classes is None else str(row.num_classes)
        table.add_row(row.name, str(row.where or "-"), *counts, shape, classes, row.advice)
    console.print(table)
