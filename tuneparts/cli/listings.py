"""`tuneparts methods | nets | searches | data`: what there is, and what can be set of it."""

import ast
import dataclasses
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import Progress, SpinnerColumn, TextColumn

from tuneparts import catalog
from tuneparts.cli.output import Form, terminal, write
from tuneparts.errors import UnknownNameError
from tuneparts.reports.rendering import Table, show
from tuneparts.search import load

if TYPE_CHECKING:
    from pydantic import BaseModel


def methods(form: Form) -> None:
    """Name, first sentence and config of every method; reads source, imports no method."""
    rows = [
        {"method": name, "what it is": _sentence(*path.split(":")), "config": path}
        for name, path in catalog.methods().items()
    ]
    _list(form, "methods", rows, prose=["what it is"])
    _hint(form, "Fields of one: tuneparts methods NAME. Try one: tuneparts fit NAME")


def method(name: str, form: Form) -> None:
    """The fields of one method."""
    if ":" not in name and name not in catalog.methods():
        raise UnknownNameError("method", name, catalog.methods())
    _fields(form, catalog.config_class(name), f"--set {name}.FIELD=VALUE of `tuneparts fit`", name)


def nets(form: Form) -> None:
    """Name, first sentence and fields of every net."""
    from tuneparts.models import NETS

    rows = [
        {
            "net": name,
            "what it is": (config.__doc__ or "").strip().partition("\n\n")[0].replace("\n", " "),
            "fields": ", ".join(field for field in config.model_fields if field != "name"),
        }
        for name, config in NETS.items()
    ]
    _list(form, "nets", rows, prose=["what it is", "fields"])
    _hint(
        form,
        "Fields of one: tuneparts nets NAME. Choose one: --set ARM.net=NAME. One of your own: "
        "a function or class by its import path, see docs/extending.md",
    )


def net(name: str, form: Form) -> None:
    """The fields of one net."""
    from tuneparts.models import NETS

    if name not in NETS:
        raise UnknownNameError("net", name, NETS)
    _fields(form, NETS[name], "--set ARM.net.FIELD=VALUE", name)


def searches(form: Form) -> None:
    """Name and question of every search file."""
    rows = [
        {"search": file.name, "question": file.question, "file": str(file.path)}
        for file in load.available()
    ]
    _list(form, "searches", rows, prose=["question"])
    _hint(
        form,
        "Arms of one: tuneparts searches NAME. Run one: tuneparts search NAME "
        "[--scale smoke|cpu|paper] [--dry-run]. Write one: tuneparts new NAME",
    )


def search(name: str, scale: str, form: Form) -> None:
    """The arms of one search: what each is, what it varies, and what it costs."""
    load.check(name, scale=scale)
    console = terminal(form)
    with console.status("reading the search file"):
        found = load.load(name, scale=scale)
    from tuneparts.cli.estimate import expected_and_most

    rows: list[dict[str, Any]] = [
        {
            "arm": arm.name,
            "method": arm.config.model_dump()["method"],
            "algorithm": arm.algorithm.kind + (f" after {arm.follows}" if arm.follows else ""),
            "trials": arm.trials_per_seed * len(found.seeds_of(arm)),
            "passes": expected_and_most(found, arm)[0],
            "varies": ", ".join(arm.space) or "-",
        }
        for arm in found.arms
    ]
    data = "" if found.data is None else found.data.name
    if form is Form.TABLE:
        console.print(f"{name} at scale {scale}: {found.question}", highlight=False, markup=False)
        console.print(
            f"data {data or '-'}, selection by {found.metric}, seeds "
            f"{', '.join(map(str, found.seeds))}",
            highlight=False,
        )
    facts = {"search": name, "scale": scale, "question": found.question, "data": data}
    _list(form, "arms", rows, prose=["varies"], numbers=["trials", "passes"], **facts)
    _hint(
        form,
        "Change a field: --set ARM.FIELD=VALUE. Fields of a method: tuneparts methods METHOD",
    )


def download(name: str, form: Form) -> None:
    """Fetch a data set into the cache."""
    from tuneparts.data import sets

    console = terminal(form)
    columns = (SpinnerColumn(), TextColumn("fetching {task.description}"))
    with Progress(*columns, console=console) as progress:
        progress.add_task(name)
        where = sets.download(name)
    console.print(f"{name} is in {where}", highlight=False, soft_wrap=True)


def data(form: Form) -> None:
    """Every data set and where it was found."""
    _list(form, "sets", _sets(), prose=["to get it"], numbers=["train", "test", "classes"])
    _hint(
        form,
        "What a search may set of its data: tuneparts data NAME. Folders of images are sets too: "
        "folder:PATH",
    )


def data_set(name: str, form: Form) -> None:
    """Where a set is, and the fields that a search may set of its data."""
    from tuneparts.data import sets
    from tuneparts.data.config import DataConfig

    sets.lookup(name)
    if form is Form.TABLE:
        for row in _sets():
            if row["set"] == name:
                told = ", ".join(f"{key} {value}" for key, value in row.items() if value)
                terminal().print(told, highlight=False, markup=False)
    _fields(form, DataConfig, "--set data.FIELD=VALUE", name)


def _sets() -> list[dict[str, Any]]:
    from tuneparts.data import sets

    return [
        {
            "set": row.name,
            "found in": "-" if row.where is None else str(row.where),
            "train": row.num_train,
            "test": row.num_test,
            "shape": "" if row.shape is None else "x".join(map(str, row.shape)),
            "classes": row.num_classes,
            "to get it": row.advice,
        }
        for row in sets.inventory()
    ]


def _fields(form: Form, cls: "type[BaseModel]", how: str, name: str) -> None:
    from tuneparts.cli import fields

    found = fields.fields(cls)
    if form is not Form.TABLE:
        write(form, "fields", [dataclasses.asdict(one) for one in found], name=name)
        return
    console = terminal()
    console.print((cls.__doc__ or "").strip().partition("\n\n")[0], highlight=False, markup=False)
    show(console, fields.table(found))
    console.print(f"Change one: {how}", highlight=False, markup=False)


def _list(
    form: Form,
    name: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    prose: Sequence[str] = (),
    numbers: Sequence[str] = (),
    **facts: Any,
) -> None:
    if form is not Form.TABLE:
        write(form, name, rows, **facts)
        return
    cells = [[_text(value) for value in row.values()] for row in rows]
    show(terminal(), Table.of_rows(list(rows[0]), cells, prose=prose, numbers=numbers))


def _text(value: Any) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _hint(form: Form, text: str) -> None:
    if form is Form.TABLE:
        terminal().print(text, highlight=False, markup=False)


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
