"""The methods, each a folder or a file: a frozen config that builds a learner.

`tuneparts.methods` also has what a method of your own is made from.
"""

from tuneparts.core import lazy

__getattr__, __all__ = lazy.attach(__file__, __name__)
