"""`tuneparts methods | searches | data`: what there is."""

import ast
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

import tuneparts
from tuneparts import catalog
from tuneparts.reports.rendering import Table, show
from tuneparts.search import load


def methods() -> None:
    """Name, first sentence and config of every method; reads source, imports nothing."""
    rows = [
        [name, _sentence(*target.split(":")), target] for name, target in catalog.METHODS.items()
    ]
    headers = ["method", "what it is", "config"]
    show(Console(), Table.of_rows(headers, rows, prose=["what it is"]))


def _sentence(module: str, cls: str) -> str:
    """The first sentence of a class's docstring."""
    path = Path(tuneparts.__file__).parent.parent.joinpath(*module.split("."))
    tree = ast.parse(path.with_suffix(".py").read_text("utf-8"))
    found = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == cls)
    return (ast.get_docstring(found) or "").partition("\n\n")[0].replace("\n", " ")


def searches() -> None:
    """Name and question of every search file."""
    rows = [[file.name, file.question, file.path] for file in load.available()]
    console = Console()
    show(console, Table.of_rows(["search", "question", "file"], rows, prose=["question"]))
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
    rows = []
    for row in sets.inventory():
        shape = "" if row.shape is None else "x".join(map(str, row.shape))
        counts = ["" if n is None else f"{n:,}" for n in (row.num_train, row.num_test)]
        classes = "" if row.num_classes is None else str(row.num_classes)
        rows.append([row.name, row.where or "-", *counts, shape, classes, row.advice])
    headers = ["set", "found in", "train", "test", "shape", "classes", "to get it"]
    numbers = ["train", "test", "classes"]
    show(console, Table.of_rows(headers, rows, numbers=numbers, prose=["to get it"]))
