"""`tuneparts methods | searches | data`: what there is."""

import ast
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Table

import tuneparts
from tuneparts import catalog
from tuneparts.search import load


def methods() -> None:
    """Name, first sentence and config of every method; reads source, imports nothing."""
    table = Table("method", "what it is", "config")
    for name, target in catalog.METHODS.items():
        table.add_row(name, _sentence(*target.split(":")), target)
    Console().print(table)


def _sentence(module: str, cls: str) -> str:
    """The first sentence of a class's docstring."""
    path = Path(tuneparts.__file__).parent.parent.joinpath(*module.split("."))
    tree = ast.parse(path.with_suffix(".py").read_text("utf-8"))
    found = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == cls)
    return (ast.get_docstring(found) or "").partition("\n\n")[0].replace("\n", " ")


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
