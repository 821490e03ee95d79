"""What can be set: the fields of a config, read from its class and the docstrings in its source."""

import ast
import inspect
import textwrap
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tuneparts.models import NetConfig
from tuneparts.results.rendering import Table

_SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
_WORDS: dict[Any, str] = {
    int: "whole number",
    float: "number",
    bool: "true or false",
    str: "text",
    dict: "names with values",
}
_DEEPEST = 2
"""Dots of a path below which configs inside are not followed."""

_USUAL = {"kind": "Which kind; the fields beside it are those of the default."}
"""Meanings of fields that many configs have."""


@dataclass(frozen=True)
class Field:
    """One field that `--set` can change."""

    path: str
    """Dotted, from the config that it is a part of."""
    takes: str
    default: str
    meaning: str


def fields(cls: type[BaseModel]) -> list[Field]:
    """List the fields of a config and of the configs inside it.

    Example:
        >>> from tuneparts.models import DigitsCnn
        >>> [(one.path, one.default) for one in fields(DigitsCnn)][:2]
        [('name', 'digits_cnn'), ('channels', '[16, 32]')]
    """
    return list(_walk(cls, "", None))


def table(found: list[Field], *, heading: str = "") -> Table:
    """Fields for people."""
    headers = ["field", "takes", "default", "meaning"]
    rows = [[one.path, one.takes, one.default, one.meaning] for one in found]
    return Table.of_rows(headers, rows, heading=heading, prose=["takes", "default", "meaning"])


def _walk(cls: type[BaseModel], prefix: str, given: BaseModel | None) -> Iterator[Field]:
    told = _docstrings(cls)
    for name, field in cls.model_fields.items():
        if name == "method":  # it says which class this is
            continue
        default = (
            field.get_default(call_default_factory=True, validated_data={})
            if given is None
            else getattr(given, name)
        )
        inner = _inner(field.annotation, default)
        about = ((inner and inner.__doc__) or "").strip().partition("\n\n")[0].replace("\n", " ")
        meaning = told.get(name) or (about if inner else _USUAL.get(name, ""))
        yield Field(prefix + name, _takes(field), _shown(default, inner), meaning)
        if inner is not None and prefix.count(".") < _DEEPEST:
            yield from _walk(inner, f"{prefix}{name}.", default if default else None)


def _shown(default: Any, inner: type[BaseModel] | None) -> str:
    """A default as `--set` would take it; that of a config inside stands in its own fields."""
    if default is PydanticUndefined:
        return "needed"
    if default is None:
        return "none"
    if isinstance(default, BaseModel):
        named = next((getattr(default, key, None) for key in ("name", "kind")), None)
        return "" if inner is not None else str(named or type(default).__name__)
    if isinstance(default, list | tuple):
        return f"[{', '.join(_shown(one, None) for one in default)}]"
    if isinstance(default, bool):
        default = str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default)


def _takes(field: FieldInfo) -> str:
    """The values that a field takes, and their bounds."""
    laws = [
        f"{sign} {getattr(one, key):g}"
        for one in field.metadata
        for key, sign in _SIGNS.items()
        if isinstance(getattr(one, key, None), int | float)
    ]
    return " ".join([_type(field.annotation), " and ".join(laws)]).strip()


def _type(kind: Any) -> str:
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _type(inside[0])
    if origin is Literal:
        return " or ".join(map(str, inside))
    if origin in (Union, types.UnionType):
        parts = [one for one in inside if one is not type(None)]
        names = _kinds(parts) if len(parts) > 1 else [_type(parts[0])]
        return " or ".join([*names, "none"] if type(None) in inside else names)
    if origin is tuple or origin is list:
        return f"a list of {_type(inside[0])}"
    if kind is NetConfig:
        return "a net of `tuneparts nets`"
    is_config = isinstance(kind, type) and issubclass(kind, BaseModel)
    return "fields below" if is_config else _WORDS.get(origin or kind) or str(kind)


def _kinds(parts: list[Any]) -> list[str]:
    """Names of what may stand in a field, each once."""
    names: dict[str, None] = {}
    for part in parts:
        kind = get_args(part)[0] if get_origin(part) is Annotated else part
        is_config = isinstance(kind, type) and issubclass(kind, BaseModel)
        if is_config and "kind" in kind.model_fields:
            names[str(kind.model_fields["kind"].default)] = None
        else:
            names[_type(kind)] = None
    return list(names)


def _inner(kind: Any, default: Any) -> type[BaseModel] | None:
    """The config class whose fields stand below: the default's, or the only or first one."""
    found = [one for one in _parts(kind) if isinstance(one, type) and issubclass(one, BaseModel)]
    # Where any net may stand, `tuneparts nets` has the fields of each.
    if not found or found[0] is NetConfig:
        return None
    return type(default) if isinstance(default, BaseModel) else found[0]


def _parts(kind: Any) -> Iterator[Any]:
    """The members of a union, also where unions are nested in it."""
    origin = get_origin(kind)
    if origin is Annotated:
        yield from _parts(get_args(kind)[0])
    elif origin in (Union, types.UnionType):
        for one in get_args(kind):
            yield from _parts(one)
    else:
        yield kind


def _docstrings(cls: type[BaseModel]) -> dict[str, str]:
    """Field -> the text below it in the source; that of the nearest class that has one."""
    found: dict[str, str] = {}
    for one in reversed(cls.__mro__):
        if issubclass(one, BaseModel) and one is not BaseModel:
            found |= _own_docstrings(one)
    return found


@cache
def _own_docstrings(cls: type[BaseModel]) -> dict[str, str]:
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except (OSError, TypeError, SyntaxError):  # made in a notebook, or without source
        return {}
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in zip(body.body, body.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
