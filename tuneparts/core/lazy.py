"""Packages whose names, listed in their stub `__init__.pyi`, are imported when first used."""

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def attach(file: str, package: str) -> tuple[Callable[[str], Any], list[str]]:
    """Return a package's `__getattr__` and the names of its stub, from its file and name."""
    stub = Path(file).with_suffix(".pyi").read_text("utf-8")
    home_of = {n: module for module, n in re.findall(r"from (\S+) import \(?\s*(\w+) as", stub)}

    def find(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module `{package}` has no attribute `{name}`")
        home = home_of[name]
        if home == package:  # a submodule
            return import_module(f"{package}.{name}")
        return getattr(import_module(home), name)

    return find, list(home_of)
