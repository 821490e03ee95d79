"""What can be set: the fields of a config, read from its class and the docstrings in its source."""

import ast
import inspect
import textwrap
import types
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from tuneparts.models import NetConfig

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


class Field(NamedTuple):
    """One field that `--set` can change."""

    path: str
    """Dotted, from the config that it is a part of."""
    takes: str
    default: str
    meaning: str


def fields(
    cls: type[BaseModel], prefix: str = "", given: BaseModel | None = None
) -> Iterator[Field]:
    """The fields of a config and of configs inside it; defaults are those of `given`, if any."""
    for name, field in cls.model_fields.items():
        if name == "method":  # it says which class this is
            continue
        default = (
            field.get_default(call_default_factory=True, validated_data={})
            if given is None
            else getattr(given, name)
        )
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
            meaning = "Which kind; the fields beside it are those of the default."
        shown = "" if inner and isinstance(default, BaseModel) else _shown(default)
        yield Field(prefix + name, takes, shown, meaning)
        if inner is not None and prefix.count(".") < _DEEPEST:
            yield from fields(inner, f"{prefix}{name}.", default or None)


def first_paragraph(thing: object) -> str:
    """Of a docstring, in one line."""
    return (thing.__doc__ or "").strip().partition("\n\n")[0].replace("\n", " ")


def _shown(default: Any) -> str:
    """A default as `--set` would take it."""
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
    """The values that a field takes, in words."""
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
