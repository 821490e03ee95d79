"""The base of every config: frozen, and closed to keys that nothing reads."""

import difflib
from collections.abc import Mapping
from typing import Any, Self, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

from tuneparts.core.errors import ConfigError

C = TypeVar("C", bound=BaseModel)


class Config(BaseModel):
    """A frozen pydantic model that refuses unknown keys and names the nearest known one."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, values: Any) -> Any:
        for key in values if isinstance(values, Mapping) else ():
            if key not in cls.model_fields:
                near = difflib.get_close_matches(str(key), cls.model_fields, n=1)
                hint = f" Did you mean `{near[0]}`?" if near else ""
                raise ValueError(
                    f"`{key}` is not a field of {cls.__name__}.{hint} "
                    f"Fields: {', '.join(cls.model_fields)}."
                )
        return values

    def replaced(self, changes: Mapping[str, Any]) -> Self:
        """A copy with fields changed by dotted path (`"optimiser.lr"`), validated as a whole."""
        tree = self.model_dump()
        for path in sorted(changes, key=lambda path: path.rpartition(".")[2] != "kind"):
            *parents, leaf = path.split(".")
            node, config = tree, cast("Any", self)
            for parent in parents:
                if parent in node and node[parent] is None:
                    node[parent] = {}
                if not isinstance(node.get(parent), dict):
                    raise ConfigError(
                        f"`{path}` of {type(self).__name__}: `{parent}` is not there or has no "
                        f"fields. Fields here: {', '.join(node)}."
                    )
                node, config = node[parent], getattr(config, parent, None)
            if leaf == "kind" and isinstance(config, Config):
                _drop_foreign(node, type(config), changes[path])
            node[leaf] = changes[path]
        made = parse(type(self), tree)
        # What nobody has set stays so: an arm takes it over from its search.
        made.model_fields_set.intersection_update(
            self.model_fields_set | {path.partition(".")[0] for path in changes}
        )
        return made


def _drop_foreign(tree: dict[str, Any], cls: Any, kind: Any) -> None:
    """Drop the fields of a config that its sister class of another kind does not have."""
    for sister in cls.__bases__[0].__subclasses__():
        if "kind" in sister.model_fields and sister.model_fields["kind"].default == kind:
            for name in tree.keys() - sister.model_fields.keys():
                del tree[name]


def usually(kind: str) -> BeforeValidator:
    """Of a union by `kind`: which one a mapping without a kind is."""
    return BeforeValidator(lambda it: {"kind": kind, **it} if isinstance(it, Mapping) else it)


def differing(value: Any, tree: Any) -> Any:
    """What of a config (`tree` in JSON) is not its default: a new field changes no digest."""
    if isinstance(value, BaseModel) and isinstance(tree, dict):
        found, fields = {}, dict(value)
        for name, part in tree.items():
            field = type(value).model_fields.get(name)
            is_default = field is not None and fields[name] == field.get_default(
                call_default_factory=True, validated_data=fields
            )
            # What a config is of counts also at its default.
            if name in {"kind", "method", "name"} or not is_default:
                found[name] = differing(getattr(value, name, None), part)
        return found
    if isinstance(value, Mapping) and isinstance(tree, dict):
        return {str(key): differing(one, tree[str(key)]) for key, one in value.items()}
    if isinstance(value, tuple | list) and isinstance(tree, list):
        return [differing(*pair) for pair in zip(value, tree, strict=True)]
    return tree


def parse(cls: type[C], values: Mapping[str, Any]) -> C:
    """Validate plain values into a config; a mistake reads as a sentence, in a `ConfigError`."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{cls.__name__} is made from named fields, but got {values!r:.100}.")
    try:
        return cls.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(sentence(error, values)) from None
    except (UnicodeError, RecursionError) as error:
        raise ConfigError(f"{cls.__name__} is made from plain values, but got {error}.") from None


def sentence(error: ValidationError, values: Any = None) -> str:
    """What pydantic found wrong in `values`: the field (of an arm by its name), its value, why."""
    lines = []
    for item in error.errors():
        # Of a whole config: the last word of its path may be the tag of a union.
        is_whole = item["type"] == "value_error" and isinstance(item["input"], Mapping)
        where = _where((*item["loc"], *[""] * is_whole), values).rstrip(".") or error.title
        message = item["msg"].removeprefix("Value error, ").removeprefix("Input ")
        if item["type"] == "union_tag_invalid":
            where, message = f"{where}.kind", f"must be one of {item['ctx']['expected_tags']}"
            item["input"] = item["ctx"]["tag"]
        if item["type"] not in {"value_error", "missing"}:
            where = f"`{where}` = {item['input']!r:.200}"
        lines.append(f"{where}: {message}")
    return "; ".join(lines)


def _where(path: tuple[int | str, ...], values: Any) -> str:
    """The path of a field, with items of a list by their names, and without tags of unions."""
    words: list[str] = []
    node = values
    for position, part in enumerate(path):
        if isinstance(node, list | tuple) and isinstance(part, int) and part < len(node):
            node = node[part]
            name = node.get("name") if isinstance(node, Mapping) else None
            if isinstance(name, str):
                words[-1:] = [name]
            else:
                words.append(str(part))
        elif not isinstance(node, Mapping) or part in node or position == len(path) - 1:
            words.append(str(part))
            node = node.get(part) if isinstance(node, Mapping) else None
    return ".".join(words)
