"""Weights as Gaussians, fixed by rounds on powers of two (Subia-Waud & Dasmahapatra 2023).

Your own net is compressed by `compress(net, (x, y), file="net.npz")` and read back by
`load("net.npz", net)`.
"""

from tuneparts.core import lazy

__getattr__, __all__ = lazy.attach(__file__, __name__)
