"""Import paths, `package.module:Name`: how a config in JSON names a class or function."""

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from tuneparts.core.errors import ConfigError

PATTERN = re.compile(r"[A-Za-z_][\w.-]*:[A-Za-z_][\w.]*")
"""What an import path looks like."""
_CURE = "Define it with `class` or `def` at the top level of a module, outside of any function."
_MAIN = ("__main__", "__mp_main__")
"""How a script is called in the process that runs it, and in worker processes of a pool."""


def of(thing: Any) -> str:
    """The import path of what another process can import; of a script's things, by its file."""
    is_bound = inspect.ismethod(thing) and not inspect.isclass(thing.__self__)
    if is_bound or not isinstance(getattr(thing, "__qualname__", None), str):
        raise ConfigError(f"{thing!r:.100}: is no class or function with a name. {_CURE}")
    path = name_of(thing)
    if "<" in path:
        raise ConfigError(f"`{path}` is a lambda, or stands inside a function. {_CURE}")
    if path.partition(":")[0] in _MAIN:
        raise ConfigError(
            f"`{thing.__qualname__}`: no worker can import what was typed into a notebook or an "
            "interpreter. Write it into a `.py` file, and import it."
        )
    return path


def name_of(thing: Any) -> str:
    """Name a class or function as `of` does, also where no other process could import it."""
    module = str(thing.__module__)
    return f"{(_main_name(module) or module) if module in _MAIN else module}:{thing.__qualname__}"


def find(path: str) -> Any:
    """Import what an import path names."""
    module, _, name = path.partition(":")
    try:
        found = loaded(module) if module == _main_name() else import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ConfigError(
            f"`{path}` cannot be imported as package.module:Name: {error}. What a search uses is "
            "in its file, whose name no other module has, in what that imports, or installed."
        ) from error
    return found


def loaded(module: str) -> Any:
    """A module that this process has imported, or the script that it runs; None if it has not."""
    return sys.modules.get("__main__" if module == _main_name() else module)


def _main_name(module: str = "__main__") -> str | None:
    """The name under which others import what this process runs; None where they cannot."""
    main = sys.modules.get(module)
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    return Path(file).stem if file is not None and file.endswith(".py") else None
