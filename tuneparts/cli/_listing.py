"""The verbs that list what there is: methods, nets, searches, runs, data; and new."""

import ast
import inspect
import re
import textwrap
import types
from collections.abc import Iterator
from functools import cache, partial
from importlib import resources
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

import tuneparts
from tuneparts.cli import _options
from tuneparts.cli._output import Form, put, terminal
from tuneparts.core import atomic
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.methods import catalog
from tuneparts.nets import NETS, REGISTRY, NetConfig
from tuneparts.search import load

app = typer.Typer()
_SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
_WORDS: dict[Any, str] = {
    int: "whole number",
    float: "number",
    bool: "true or false",
    str: "text",
    dict: "names with values",
    NetConfig: "a net of `tuneparts nets`",
}
_DEEPEST = 2
"""Dots of a path below which configs inside are not followed."""


@app.command(epilog=_options.words("step"))
def methods(
    name: _options.SomeMethod = None, as_json: _options.Json = False, as_csv: _options.Csv = False
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
    as_json: _options.Json = False,
    as_csv: _options.Csv = False,
) -> None:
    """List the nets that a config can name; with NAME its fields."""
    form = Form.of(as_json=as_json, as_csv=as_csv)
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


@app.command(epilog=_options.words("search", "arm", "scale"))
def searches(
    name: _options.SomeSearch = None,
    scale: _options.Scale = "cpu",
    as_json: _options.Json = False,
    as_csv: _options.Csv = False,
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
    from tuneparts.cli._estimate import plan_rows

    rows = [
        {key: row[key] for key in ("arm", "method", "algorithm", "trials", "steps")}
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
    put(form, "arms", rows, hint, prose=["varies"], numbers=["trials", "steps"], **facts)


@app.command()
def runs(as_json: _options.Json = False, as_csv: _options.Csv = False) -> None:
    """List all runs, the newest first: when each began, its status, and how many trials ended."""
    form = Form.of(as_json=as_json, as_csv=as_csv)
    with terminal(form).status("reading the runs"):
        found = tuneparts.runs()
    if found.empty and form is Form.TABLE:
        terminal().print("there is no run yet. Start with `tuneparts search rotated_digits`.")
        return
    rows: list[dict[Any, Any]] = found.to_dict("records")
    hint = "Read one: tuneparts report NAME. Continue one: tuneparts resume NAME"
    put(form, "runs", rows, hint, numbers=["done", "open", "failed"])


@app.command()
def data(
    name: Annotated[
        str | None, typer.Argument(help="One set, with the fields that a search may set.")
    ] = None,
    download: Annotated[
        str | None, typer.Option(help="Fetch this set into the cache.", metavar="NAME")
    ] = None,
    as_json: _options.Json = False,
    as_csv: _options.Csv = False,
) -> None:
    """List the data sets, where each was found, or how to get it; with NAME its fields."""
    form = Form.of(as_json=as_json, as_csv=as_csv)
    from tuneparts.data import sets
    from tuneparts.data.config import Data

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
    _fields(form, Data, "--set data.FIELD=VALUE", name)


def _fields(form: Form, cls: type[BaseModel], how: str, name: str) -> None:
    rows = [one._asdict() for one in fields_of(cls)]
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


@app.command(epilog=_options.words("search", "arm"))
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
        why = "tuneparts has a search of this name"
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


class Field(NamedTuple):
    """One field that `--set` can change."""

    path: str
    """Dotted, from the config that it is a part of."""
    takes: str
    default: str
    meaning: str


def fields_of(
    cls: type[BaseModel], prefix: str = "", given: BaseModel | None = None
) -> Iterator[Field]:
    """The fields of a config and of configs inside it; defaults are those of `given`, if any."""
    for name, field in cls.model_fields.items():
        if name == "method":  # it says which class this is
            continue
        usual = partial(field.get_default, call_default_factory=True, validated_data={})
        default = usual() if given is None else getattr(given, name)
        bounds = [
            f"{sign} {getattr(one, key):g}"
            for one in field.metadata
            for key, sign in _SIGNS.items()
            if isinstance(getattr(one, key, None), int | float)
        ]
        takes = f"{_type(field.annotation)} {' and '.join(bounds)}".strip()
        inner = _inner(field.annotation, default)
        meaning = _docstrings(cls).get(name) or (first_paragraph(inner) if inner else "")
        if not meaning and name == "kind":
            meaning = "Which kind; the other fields are those of the default."
        shown = "" if inner and isinstance(default, BaseModel) else _shown(default)
        yield Field(prefix + name, takes, shown, meaning)
        if inner is not None and prefix.count(".") < _DEEPEST:
            yield from fields_of(inner, f"{prefix}{name}.", default or None)


def first_paragraph(thing: object) -> str:
    """Of a docstring, in one line."""
    return (thing.__doc__ or "").strip().partition("\n\n")[0].replace("\n", " ")


def _shown(default: Any) -> str:
    if default is PydanticUndefined:
        return "needed"
    if isinstance(default, BaseModel):
        return str(getattr(default, "name", None) or type(default).__name__)
    if isinstance(default, list | tuple):
        return f"[{', '.join(map(_shown, default))}]"
    if default is None or isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default)


def _type(kind: Any) -> str:
    parts = list(_parts(kind))
    if len(parts) > 1:
        named = [one for one in parts if one is not type(None)]
        names = dict.fromkeys(map(_kind if len(named) > 1 else _type, named))
        return " or ".join([*names, "none"] if len(named) < len(parts) else names)
    (kind,) = parts
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " or ".join(map(str, inside))
    if origin is tuple or origin is list:
        return f"a list of {_type(inside[0])}"
    return _WORDS.get(origin or kind) or ("fields below" if _is_config(kind) else str(kind))


def _kind(part: Any) -> str:
    """What a member of a union is called: its kind, if it has one."""
    if _is_config(part) and "kind" in part.model_fields:
        return str(part.model_fields["kind"].default)
    return _type(part)


def _inner(kind: Any, default: Any) -> type[BaseModel] | None:
    """The config class whose fields stand below: the default's, or the only or first one."""
    found = next(filter(_is_config, _parts(kind)), None)
    if found is None or found is NetConfig:  # `tuneparts nets` has the fields of each net
        return None
    return type(default) if isinstance(default, BaseModel) else found


def _is_config(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _parts(kind: Any) -> Iterator[Any]:
    """The members of a union, also where unions are nested in it."""
    if get_origin(kind) is Annotated:
        yield from _parts(get_args(kind)[0])
    elif get_origin(kind) in (Union, types.UnionType):
        for one in get_args(kind):
            yield from _parts(one)
    else:
        yield kind


@cache
def _docstrings(cls: type[BaseModel]) -> dict[str, str]:
    """Field -> the text below it in the source; that of the nearest class that has one."""
    found: dict[str, str] = {}
    for one in reversed(cls.__mro__[: cls.__mro__.index(BaseModel)]):
        try:
            tree: Any = ast.parse(textwrap.dedent(inspect.getsource(one)))
        except (OSError, TypeError, SyntaxError):  # made in a notebook, or without source
            continue
        for field, below in pairwise(tree.body[0].body):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = " ".join(text.split())
    return found
