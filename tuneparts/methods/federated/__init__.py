"""Federated partitioned training (Mlodozeniec et al. 2023, appendix J), and federated averaging."""

from tuneparts.core import lazy

__getattr__, __all__ = lazy.attach(__file__, __name__)
