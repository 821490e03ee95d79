"""The base of every config: frozen, and closed to keys that nothing reads."""

import difflib
from collections.abc import Mapping
from typing import Any, ClassVar, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from tuneparts.errors import ConfigError

C = TypeVar("C", bound=BaseModel)

_WHOLE: dict[str, bool] = {"whole": True}
"""Asks for every field, also for those that JSON leaves out."""


class Config(BaseModel):
    """A frozen pydantic model that refuses unknown keys and names the nearest known one."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    later_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that came after searches had been published. JSON leaves them out at their default,
    so that the digests of searches that do not know them stay as they were. Their default must
    mean what was done before there was the field. Those of base classes count too."""

    @model_serializer(mode="wrap")
    def _leave_out_later_fields(
        self, handler: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        tree: dict[str, Any] = handler(self)
        if info.context is not _WHOLE:
            for name in {name for cls in type(self).__mro__ for name in _later_fields(cls)}:
                field = type(self).model_fields[name]
                if getattr(self, name) == field.get_default(call_default_factory=True):
                    tree.pop(name, None)
        return tree

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, values: Any) -> Any:
        if isinstance(values, Mapping):
            for key in values:
                if key not in cls.model_fields:
                    near = difflib.get_close_matches(str(key), cls.model_fields, n=1)
                    cure = f" Did you mean `{near[0]}`?" if near else ""
                    known = ", ".join(cls.model_fields)
                    raise ValueError(
                        f"`{key}` is not a field of {cls.__name__}.{cure} Fields: {known}."
                    )
        return values

    def replaced(self, changes: Mapping[str, Any]) -> Self:
        """A copy with fields changed by dotted path, validated as a whole.

        Args:
            changes: dotted path (`"optimiser.lr"`) to the new value.
        """
        tree = self.model_dump(context=_WHOLE)
        for path, value in changes.items():
            *parents, leaf = path.split(".")
            node = tree
            for parent in parents:
                child = node.get(parent) if isinstance(node, dict) else None
                if child is None and isinstance(node, dict) and parent in node:
                    child = node[parent] = {}
                if not isinstance(child, dict):
                    raise ConfigError(
                        f"`{path}` does not lead to a field of {type(self).__name__}: "
                        f"`{parent}` is not there or has no fields. "
                        f"Fields here: {', '.join(node)}."
                    )
                node = child
            node[leaf] = value
        return parse(type(self), tree)


def _later_fields(cls: type) -> tuple[str, ...]:
    own: tuple[str, ...] = vars(cls).get("later_fields", ())
    return own


def parse(cls: type[C], values: Mapping[str, Any]) -> C:
    """Validate plain values into a config; a mistake reads as a sentence, in a `ConfigError`."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{cls.__name__} is made from named fields, but got {values!r:.100}.")
    try:
        return cls.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(sentence(cls, error)) from None
    except (UnicodeError, RecursionError) as error:
        raise ConfigError(f"{cls.__name__} is made from plain values, but got {error}.") from None


def sentence(cls: type[BaseModel], error: ValidationError) -> str:
    """What pydantic found wrong, in a line."""
    lines = []
    for item in error.errors():
        where = ".".join(str(part) for part in item["loc"]) or cls.__name__
        message = item["msg"].removeprefix("Value error, ")
        given = "" if item["type"] == "value_error" else f" (got {item['input']!r})"
        lines.append(f"{where}: {message}{given}")
    return "; ".join(lines)
