"""Arrays in, splits out: data sets, splits, chunks and resumable batches.

Example:
    >>> from tuneparts import data
    >>> len(data.Digits(num_val=300).load(0).val)
    300
"""

from tuneparts.core import lazy

__getattr__, __all__ = lazy.attach(__file__, __name__)
