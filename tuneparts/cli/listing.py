"""The verbs that say what there is: methods, nets, searches, data; and new."""

import ast
import dataclasses
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuneparts.cli import options
from tuneparts.cli.output import Form, terminal, write
from tuneparts.core import atomic
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.results.rendering import Table, show

if TYPE_CHECKING:
    from pydantic import BaseModel

app = typer.Typer()
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@app.command(epilog=options.words("hyper", "pass"))
def methods(
    name: options.SomeMethod = None, as_json: options.Json = False, as_csv: options.Csv = False
) -> None:
    """List the methods that a search can use; with NAME its fields, to be set by `--set`."""
    form = Form.of(as_json=as_json, as_csv=as_csv)
    from tuneparts.methods import catalog

    known = catalog.METHODS.names()
    if name is None:
        rows = [
            {"method": one, "what it is": _sentence(*path.split(":")), "config": path}
            for one, path in known.items()
        ]
        hint = "Fields of one: tuneparts methods NAME. Try one: tuneparts fit NAME"
        _list(form, "methods", rows, hint, prose=["what it is"])
        return
    if ":" not in name and name not in known:
        raise UnknownNameError("method", name, known)
    _fields(form, catalog.config_class(name), f"--set {name}.FIELD=VALUE of `tuneparts fit`", name)


@app.command()
def nets(
    name: Annotated[str | None, typer.Argument(help="One net, with its fields.")] = None,
    as_json: options.Json = False,
    as_csv: options.Csv = False,
) -> None:
    """List the nets that a config can name; with NAME its fields."""
    form = Form.of(as_json=as_json, as_csv=as_csv)
    from tuneparts.models import NETS
    from tuneparts.models.config import REGISTRY

    if name is None:
        rows = [
            {
                "net": one,
                "what it is": _first(config.__doc__),
                "fields": ", ".join(field for field in config.model_fields if field != "name"),
            }
            for one, config in NETS.items()
        ]
        own = {one: path for one, path in REGISTRY.names().items() if one not in NETS}
        rows += [{"net": one, "what it is": path, "fields": ""} for one, path in own.items()]
        hint = "Fields of one: tuneparts nets NAME. Choose one: --set ARM.net=NAME. One of your "
        hint += "own: a function or class by its import path, see docs/extending.md"
        _list(form, "nets", rows, hint, prose=["what it is", "fields"])
        return
    if name not in NETS:
        raise UnknownNameError("net", name, NETS)
    _fields(form, NETS[name], "--set ARM.net.FIELD=VALUE", name)


@app.command(epilog=options.words("search", "arm", "scale"))
def searches(
    name: options.SomeSearch = None,
    scale: options.Scale = "cpu",
    as_json: options.Json = False,
    as_csv: options.Csv = False,
) -> None:
    """List the search files, each a question; with NAME its arms and what they vary."""
    form = Form.of(as_json=as_json, as_csv=as_csv)
    from tuneparts.search import load

    rows: list[dict[str, Any]]
    if name is None:
        rows = [
            {"search": file.name, "question": file.question, "file": str(file.path)}
            for file in load.available()
        ]
        hint = "Arms of one: tuneparts searches NAME. Run one: tuneparts search NAME "
        hint += "[--scale smoke|cpu|paper] [--dry-run]. Write one: tuneparts new NAME"
        _list(form, "searches", rows, hint, prose=["question"])
        return
    console = terminal(form)
    with console.status("reading the search file"):
        found = load.load(name, scale=scale)
    from tuneparts.cli.estimate import plan_rows

    rows = [
        {key: row[key] for key in ("arm", "method", "algorithm", "trials", "passes")}
        | {"varies": ", ".join(arm.space) or "-"}
        for arm, row in zip(found.arms, plan_rows(found, None), strict=True)
    ]
    data = "" if found.data is None else found.data.name
    if form is Form.TABLE:
        console.print(f"{name} at scale {scale}: {found.question}", highlight=False, markup=False)
        seeds = ", ".join(map(str, found.seeds))
        said = f"data {data or '-'}, selection by {found.metric}, seeds {seeds}"
        console.print(said, highlight=False)
    facts = {"search": name, "scale": scale, "question": found.question, "data": data}
    hint = "Change a field: --set ARM.FIELD=VALUE. Fields of a method: tuneparts methods METHOD"
    _list(form, "arms", rows, hint, prose=["varies"], numbers=["trials", "passes"], **facts)


@app.command()
def data(
    name: Annotated[
        str | None, typer.Argument(help="One set, with the fields that a search may set.")
    ] = None,
    download: Annotated[
        str | None, typer.Option(help="Fetch this set into the cache.", metavar="NAME")
    ] = None,
    as_json: options.Json = False,
    as_csv: options.Csv = False,
) -> None:
    """List the data sets, where each was found, or how to get it; with NAME its fields."""
    form = Form.of(as_json=as_json, as_csv=as_csv)
    from rich.progress import Progress, SpinnerColumn, TextColumn

    from tuneparts.data import sets

    if download is not None:
        console = terminal(form)
        columns = (SpinnerColumn(), TextColumn("fetching {task.description}"))
        with Progress(*columns, console=console) as progress:
            progress.add_task(download)
            where = sets.download(download)
        console.print(f"{download} is in {where}", highlight=False, soft_wrap=True)
    if name is not None:
        sets.lookup(name)
    rows = [
        {
            "set": one,
            "found in": found.where if found else "-",
            "train": found and found.num_train,
            "test": found and found.num_test,
            "shape": "x".join(map(str, (found and found.shape) or ())),
            "classes": found and found.num_classes,
            "to get it": advice,
        }
        for one, found, advice in sets.inventory()
    ]
    if name is None:
        hint = "What a search may set of its data: tuneparts data NAME. Folders of images are sets "
        hint += "too: folder:PATH"
        _list(form, "sets", rows, hint, prose=["to get it"], numbers=["train", "test", "classes"])
        return
    from tuneparts.data.config import DataConfig

    for row in rows:
        if form is Form.TABLE and row["set"] == name:
            told = ", ".join(f"{key} {value}" for key, value in row.items() if value)
            terminal().print(told, highlight=False, markup=False)
    _fields(form, DataConfig, "--set data.FIELD=VALUE", name)


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
    hint: str,
    *,
    prose: Sequence[str],
    numbers: Sequence[str] = (),
    **facts: Any,
) -> None:
    if form is not Form.TABLE:
        write(form, name, rows, **facts)
        return
    cells = [[_text(value) for value in row.values()] for row in rows]
    show(terminal(), Table.of_rows(list(rows[0]), cells, prose=prose, numbers=numbers))
    terminal().print(hint, highlight=False, markup=False)


def _text(value: Any) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _first(docstring: str | None) -> str:
    return (docstring or "").strip().partition("\n\n")[0].replace("\n", " ")


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
            return _first(ast.get_docstring(node))
    return ""


@app.command(epilog=options.words("search", "arm"))
def new(
    name: Annotated[
        str, typer.Argument(help="Of the search: small letters, digits and underscores.")
    ],
) -> None:
    """Write a search file with comments, searches/NAME.py, that runs as it is."""
    from tuneparts.search import load

    if not _NAME.fullmatch(name):
        raise ConfigError(
            "a search is named by small letters, digits and underscores, a letter first, but got "
            f"`{name}`."
        )
    path = Path("searches") / f"{name}.py"
    if path.exists():
        raise ConfigError(f"a new search has a name of its own, but {path} is there already.")
    if name in {file.name for file in load.available()}:
        raise ConfigError(
            f"a new search has a name of its own, but tuneparts brings a search `{name}` along. "
            "Choose another."
        )
    path.parent.mkdir(exist_ok=True)
    template = resources.files("tuneparts.cli").joinpath("new_search.txt").read_text("utf-8")
    atomic.write_text(path, template.replace("NAME", name))
    console = terminal()
    for line in (
        f"{path} is written: a question, and three arms to answer it. Next:",
        f"  tuneparts search {name} --dry-run        what it will cost",
        f"  tuneparts search {name} --scale smoke    does everything run?",
        f"  tuneparts search {name}                  the answer",
        "Its fields: tuneparts methods partitioned, tuneparts nets, tuneparts data digits",
    ):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
