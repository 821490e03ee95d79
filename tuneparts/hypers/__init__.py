"""Hypers: what a prediction depends on besides the net, learnt or given. No torch is imported here.

`hyper` says what a hyper is, `kinds` has ours, `config` puts them together; `hypers` predicts with
a net under them.
"""

from tuneparts.core import lazy

__getattr__, __all__ = lazy.attach(__file__, __name__)
