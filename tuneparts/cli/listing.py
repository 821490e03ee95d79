"""The verbs that say what there is: methods, nets, searches, data; and new."""

import ast
import re
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuneparts.cli import options
from tuneparts.cli.output import Form, put, terminal
from tuneparts.core import atomic
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.methods import catalog
from tuneparts.search import load

if TYPE_CHECKING:
    from pydantic import BaseModel

app = typer.Typer()


@app.command(epilog=options.words("hyper", "pass"))
def methods(
    name: options.SomeMethod = None, as_json: options.Json = False, as_csv: options.Csv = False
) -> None:
    """List the methods that a search can use; with NAME its fields, to be set by `--set`."""
    form = Form.of(as_json=as_json, as_csv=as_csv)
    if name is None:
        rows = [
            {"method": one, "what it is": _docstring(*path.split(":")), "config": path}
            for one, path in catalog.METHODS.names().items()
        ]
        hint = "Fields of one: tuneparts methods NAME. Try one: tuneparts fit NAME"
        put(form, "methods", rows, hint, prose=["what it is"])
        return
    _fields(form, catalog.config_class(name), f"--set {name}.FIELD=VALUE of `tuneparts fit`", name)


@app.command()
def nets(
    name: Annotated[str | None, typer.Argument(help="One net, with its fields.")] = None,
    as_json: options.Json = False,
    as_csv: options.Csv = False,
) -> None:
    """List the nets that a config can name; with NAME its fields."""
    form = Form.of(as_json=as_json, as_csv=as_csv)
    from tuneparts.cli.fields import first_paragraph
    from tuneparts.models import NETS, REGISTRY

    if name is None:
        rows = [
            {
                "net": one,
                "what it is": first_paragraph(config),
                "fields": ", ".join(field for field in config.model_fields if field != "name"),
            }
            for one, config in NETS.items()
        ]
        own = {one: path for one, path in REGISTRY.names().items() if one not in NETS}
        rows += [{"net": one, "what it is": path, "fields": ""} for one, path in own.items()]
        hint = "Fields of one: tuneparts nets NAME. Choose one: --set ARM.net=NAME. One of your "
        hint += "own: a function or class by its import path, see docs/extending.md"
        put(form, "nets", rows, hint, prose=["what it is", "fields"])
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
    rows: list[dict[str, Any]]
    if name is None:
        rows = [
            {"search": name, "question": load.question(path), "file": str(path)}
            for name, path in load.available().items()
        ]
        hint = "Arms of one: tuneparts searches NAME. Run one: tuneparts search NAME "
        hint += "[--scale smoke|cpu|paper] [--dry-run]. Write one: tuneparts new NAME"
        put(form, "searches", rows, hint, prose=["question"])
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
        seeds = ", ".join(map(str, found.seeds))
        console.print(f"{name} at scale {scale}: {found.question}")
        console.print(f"data {data or '-'}, selection by {found.metric}, seeds {seeds}")
    facts = {"search": name, "scale": scale, "question": found.question, "data": data}
    hint = "Change a field: --set ARM.FIELD=VALUE. Fields of a method: tuneparts methods METHOD"
    put(form, "arms", rows, hint, prose=["varies"], numbers=["trials", "passes"], **facts)


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
    from tuneparts.data import sets
    from tuneparts.data.config import DataConfig

    console = terminal(form)
    if download is not None:
        with console.status(f"fetching {download}"):
            where = sets.download(download)
        console.print(f"{download} is in {where}", soft_wrap=True)
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
        put(form, "sets", rows, hint, prose=["to get it"], numbers=["train", "test", "classes"])
        return
    for row in rows:
        if form is Form.TABLE and row["set"] == name:
            console.print(", ".join(f"{key} {value}" for key, value in row.items() if value))
    _fields(form, DataConfig, "--set data.FIELD=VALUE", name)


def _fields(form: Form, cls: "type[BaseModel]", how: str, name: str) -> None:
    from tuneparts.cli.fields import fields

    rows = [one._asdict() for one in fields(cls)]
    if form is Form.TABLE:
        terminal().print((cls.__doc__ or "").strip().partition("\n\n")[0])
        rows = [{"field": row.pop("path"), **row} for row in rows]
    prose = ["takes", "default", "meaning"]
    put(form, "fields", rows, f"Change one: {how}", prose=prose, name=name)


def _docstring(module: str, cls: str) -> str:
    """First paragraph of a class's docstring, without importing it; empty without its source."""
    top, *rest = module.split(".")
    spec = find_spec(top)
    if spec is None or spec.origin is None:
        return ""
    path = Path(spec.origin).parent.joinpath(*rest) if rest else Path(spec.origin)
    path = path / "__init__.py" if rest and path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(path.read_text("utf-8")).body if path.is_file() else ():
        if isinstance(node, ast.ClassDef) and node.name == cls:
            return (ast.get_docstring(node) or "").partition("\n\n")[0].replace("\n", " ")
    return ""


@app.command(epilog=options.words("search", "arm"))
def new(
    name: Annotated[
        str, typer.Argument(help="Of the search: small letters, digits and underscores.")
    ],
) -> None:
    """Write a search file with comments, searches/NAME.py, that runs as it is."""
    path, why = Path("searches") / f"{name}.py", ""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        why = "a search is named by small letters, digits and underscores, a letter first"
    elif path.exists():
        why = f"{path} is there already"
    elif name in load.available():
        why = "tuneparts brings a search of this name along"
    if why:
        raise ConfigError(f"`{name}`: {why}. Choose another.")
    path.parent.mkdir(exist_ok=True)
    template = resources.files("tuneparts.cli").joinpath("new_search.txt").read_text("utf-8")
    atomic.write_text(path, template.replace("NAME", name))
    text = f"""{path} is written: a question, and three arms to answer it. Next:
  tuneparts search {name} --dry-run        what it will cost
  tuneparts search {name} --scale smoke    does everything run?
  tuneparts search {name}                  the answer
Its fields: tuneparts methods partitioned, tuneparts nets, tuneparts data digits"""
    terminal().print(text, soft_wrap=True)
