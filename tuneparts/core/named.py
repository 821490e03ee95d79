"""Algorithms, dimensions and targets in JSON: how the `kind` there leads to their class."""

from abc import ABC
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import field_validator

from tuneparts.core import import_path
from tuneparts.core.config import Config, parse
from tuneparts.core.errors import ConfigError, UnknownNameError


class Named(Config, ABC):
    """A part of a search that is an object in Python, and in JSON its fields with a `kind`.

    The kind is filled in by the class itself: a short name for our own classes, and the import
    path `package.module:Class` for any other. So a class needs no registration, but it must stand
    where an import finds it: at the top of a module, not inside a function.
    """

    noun: ClassVar[str]
    """What an error message calls it: "an algorithm"."""
    known: ClassVar[Mapping[str, str]]
    """Short name -> import path, of our own classes."""

    kind: str = ""

    @field_validator("kind", mode="before")
    @classmethod
    def _fill_kind(cls, value: Any) -> str:
        own = cls.name_of_kind()
        if value not in ("", own):
            raise ValueError(f"the kind of {cls.__name__} is `{own}`, but got {value!r:.100}")
        return own

    @classmethod
    def name_of_kind(cls) -> str:
        """The `kind` of this class.

        Raises:
            ConfigError: The class stands inside a function, so that no import leads to it.
        """
        path = import_path.of(cls)
        return next((name for name, target in cls.known.items() if target == path), path)

    @classmethod
    def made_from(cls, value: Any) -> Any:
        """An object from its JSON; anything that is no mapping is returned as it is."""
        if not isinstance(value, Mapping):
            return value
        return parse(cls.class_of(value.get("kind")), value)

    @classmethod
    def class_of(cls, kind: Any) -> type[Self]:
        """The class that a kind names.

        Raises:
            UnknownNameError: for a word that is not one of our own kinds; it lists them.
            ConfigError: for an import path that leads to no complete subclass.
        """
        if not isinstance(kind, str) or (kind not in cls.known and ":" not in kind):
            raise UnknownNameError(cls.noun.split()[-1], str(kind), cls.known)
        found = import_path.find(cls.known.get(kind, kind))
        if not (isinstance(found, type) and issubclass(found, cls)):
            raise ConfigError(
                f"the import path of {cls.noun} leads to a subclass of {cls.__name__}, but "
                f"`{kind}` leads to {found!r:.100}."
            )
        missing = sorted(getattr(found, "__abstractmethods__", ()))
        if missing:
            raise ConfigError(
                f"{cls.noun} defines {', '.join(missing)}, but `{kind}` does not. "
                f"The docstring of {cls.__name__} says what each is for."
            )
        return found
