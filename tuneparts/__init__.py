"""Ray Tune search and benchmarking of methods that learn hyperparameters in one run.

Names of this module are imported when they are first used, so `import tuneparts` is quick and
`tuneparts.partition` needs neither Ray nor MLflow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuneparts.api import Results as Results
    from tuneparts.api import load as load
    from tuneparts.api import resume as resume
    from tuneparts.api import run as run
    from tuneparts.data.config import DataConfig as DataConfig
    from tuneparts.search.space import Choice as Choice
    from tuneparts.search.space import Uniform as Uniform
    from tuneparts.search.spec import Arm as Arm
    from tuneparts.search.spec import Scale as Scale
    from tuneparts.search.spec import Search as Search

__version__ = "0.1.0"

_HOMES = {
    "tuneparts.api": ("Results", "load", "resume", "run"),
    "tuneparts.data.config": ("DataConfig",),
    "tuneparts.search.space": ("Choice", "Uniform"),
    "tuneparts.search.spec": ("Arm", "Scale", "Search"),
}
"""Where the public names live."""
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_HOME_OF]  # noqa: PLE0604 - all of them are strings


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module `tuneparts` has no attribute `{name}`")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
