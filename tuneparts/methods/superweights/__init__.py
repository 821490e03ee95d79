"""SuperWeight networks: several nets from one parameter budget (Teterwak et al. 2024).

Your own nets become an ensemble by `fit([net, net], x, y, budget=...)`.
"""

from tuneparts.core import lazy

__getattr__, __all__ = lazy.attach(__file__, __name__)
