"""How parts of a search (methods, nets, data, hyperparameters, algorithms, ...) are named.

By a short name of ours, an entry point of an installed package, or an import path
`package.module:Name`. Nothing is imported until it is asked for.
"""

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, ClassVar

from pydantic import field_validator

from tuneparts.core import import_path
from tuneparts.core.config import Config, parse
from tuneparts.core.errors import ConfigError, UnknownNameError


@dataclass(frozen=True)
class Registry:
    """The names of one kind of part."""

    noun: str
    """What an error message calls a part."""
    known: Mapping[str, str]
    """Short name -> import path, of our own parts."""
    group: str = ""
    """Of the entry points by which an installed package gives names to parts of its own."""

    def names(self) -> dict[str, str]:
        """Name -> import path of our own parts and of those of installed packages."""
        found = dict(self.known)
        for point in metadata.entry_points(group=self.group) if self.group else ():
            if found.setdefault(point.name, point.value) != point.value:
                package = point.dist.name if point.dist is not None else "a package"
                raise ConfigError(
                    f"entry point `{point.name}` of {package}: the {self.noun} of this name is "
                    f"{found[point.name]}, not {point.value}. Rename it, or uninstall the package."
                )
        return found

    def name_of(self, part: Any) -> str:
        """The short name of one of our own parts; the import path of any other."""
        path = import_path.of(part)
        return next((name for name, target in self.known.items() if target == path), path)

    def path_of(self, name: object) -> str:
        """The import path behind a name; an unknown one is refused with those that there are."""
        path = self.known.get(str(name), str(name))
        if ":" in path:
            return path
        known = self.names()
        if path not in known:
            raise UnknownNameError(self.noun, path, known)
        return known[path]

    def find(self, name: object, base: type | None = None) -> Any:
        """Import the part behind a name; with `base` it must be a complete subclass of that."""
        found = import_path.find(self.path_of(name))
        if base is None:
            return found
        if not (isinstance(found, type) and issubclass(found, base)):
            raise ConfigError(
                f"{self.noun} `{name}` is {found!r:.100}, not a subclass of {base.__name__}."
            )
        if missing := sorted(getattr(found, "__abstractmethods__", ())):
            raise ConfigError(
                f"{self.noun} `{name}` does not define {', '.join(missing)}. The docstring of "
                f"{base.__name__} says what each is for."
            )
        return found


class Named(Config, ABC):
    """A part of a search; in JSON its fields with a `kind`, by which the class is imported."""

    registry: ClassVar[Registry]
    kind: str = ""

    @field_validator("kind", mode="before")
    @classmethod
    def _fill_kind(cls, value: Any) -> str:
        own = cls.registry.name_of(cls)
        if value not in ("", own):
            raise ValueError(f"the kind of {cls.__name__} is `{own}`, but got {value!r:.100}")
        return own

    @classmethod
    def made_from(cls, value: Any) -> Any:
        """An object from its JSON; anything that is no mapping is returned as it is."""
        if not isinstance(value, Mapping):
            return value
        return parse(cls.registry.find(value.get("kind"), cls), value)
