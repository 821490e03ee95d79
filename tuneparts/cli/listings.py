"""`tuneparts methods | searches | data`: what there is."""

import ast
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from tuneparts import catalog
from tuneparts.reports.rendering import Table, show
from tuneparts.search import load


def methods() -> None:
    """Name, first sentence and config of every method; reads source, imports no method."""
    rows = [[name, _sentence(*path.split(":")), path] for name, path in catalog.methods().items()]
    headers = ["method", "what it is", "config"]
    show(Console(), Table.of_rows(headers, rows, prose=["what it is"]))


def _sentence(module: str, cls: str) -> str:
    """The first sentence of a class's docstring; nothing where the source is not found."""
    top, *rest = module.split(".")
    spec = find_spec(top)
    if spec is None or spec.origin is None:
        return ""
    path = Path(spec.origin).parent.joinpath(*rest) if rest else Path(spec.origin)
    path = path / "__init__.py" if rest and path.is_dir() else path.with_suffix(".py")
    if not path.is_file():
        return ""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == cls:
            return (ast.get_docstring(node) or "").partition("\n\n")[0].replace("\n", " ")
    return ""


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
