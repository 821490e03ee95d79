"""Ray Tune search and benchmarking of methods that learn hyperparameters in one run.

What a search file needs can be imported from here. The names are listed in `__init__.pyi`, and are
imported when they are first used, so `import tuneparts` is quick.

Example:
    >>> from tuneparts import Arm, Choice, GridSearch, StandardConfig
    >>> widths = {"net.widths": Choice(options=((16,), (32,)))}
    >>> Arm(name="a", config=StandardConfig(), algorithm=GridSearch(), space=widths).trials_per_seed
    2
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_HOME_OF = {
    name: module
    for module, name in re.findall(
        r"from (\S+) import \(?\s*(\w+) as", Path(__file__).with_suffix(".pyi").read_text("utf-8")
    )
}
"""Public name -> module that has it."""

__all__ = ["__version__", *_HOME_OF]  # noqa: PLE0604 - all of them are strings


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module `tuneparts` has no attribute `{name}`")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
