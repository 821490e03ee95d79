"""Ray Tune search and benchmarking of methods that learn hyperparameters in one run.

What a search file needs can be imported from here. The names are listed in `__init__.pyi`, and are
imported when they are first used, so `import tuneparts` is quick.

Example:
    >>> from tuneparts import Arm, Choice, GridSearch, Standard
    >>> widths = {"net.widths": Choice(options=((16,), (32,)))}
    >>> Arm(name="a", config=Standard(), algorithm=GridSearch(), space=widths).trials_per_seed
    2
"""

from tuneparts.core import lazy

__version__ = "0.1.0"
__getattr__, __all__ = lazy.attach(__file__, __name__)
__all__ += ["__version__"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
