"""Affine motions from six generators with symmetric ranges (Immer et al. 2022).

The common default of all image experiments: its six maxima are the axes on which
Mlodozeniec et al. (2023, appendix G) compare learnt ranges with random search.
"""

import math
from typing import Annotated, Literal

import torch
from torch import Tensor

from tuneparts.hypers.affine.augmentation import Affine, AffineConfig
from tuneparts.hypers.affine.exponential import exponential
from tuneparts.hypers.constrained import POSITIVE, ConstrainedParameter
from tuneparts.hypers.hyper import Number

NAMES = ("translate_x", "translate_y", "rotation", "scale_x", "scale_y", "shear")
_ROTATION = NAMES.index("rotation")

# First two rows of the generators, in the order of NAMES.
_GENERATORS = (
    ((0, 0, 1), (0, 0, 0)),
    ((0, 0, 0), (0, 0, 1)),
    ((0, -1, 0), (1, 0, 0)),
    ((1, 0, 0), (0, 0, 0)),
    ((0, 0, 0), (0, 1, 0)),
    ((0, 1, 0), (1, 0, 0)),
)


class LilaConfig(AffineConfig):
    """The largest motion of each generator; each draw is uniform in plus-minus that.

    What is not given is 0.05, also when fixed: hold a motion out by setting it to 0.

    Example:
        >>> import torch
        >>> from tuneparts.hypers.affine import LilaConfig
        >>> lila = LilaConfig(rotation=3.14).build(learnable=True)
        >>> images = torch.rand(2, 1, 8, 8)
        >>> lila(images, 4, torch.Generator().manual_seed(0)).shape
        torch.Size([8, 1, 8, 8])
    """

    kind: Literal["lila"] = "lila"
    rotation: Annotated[float, Number(POSITIVE, identity=0.0, metric="rotation")] = 0.05
    """Radians; beyond pi it acts, and is reported, as pi: the whole circle. A learnt one that
    passes pi turns back, see `Lila`."""
    translate_x: Annotated[float, Number(POSITIVE, identity=0.0, metric="translate_x")] = 0.05
    """Half image widths."""
    translate_y: Annotated[float, Number(POSITIVE, identity=0.0, metric="translate_y")] = 0.05
    """Half image heights."""
    scale_x: Annotated[float, Number(POSITIVE, identity=0.0, metric="scale_x")] = 0.05
    """Log-scale."""
    scale_y: Annotated[float, Number(POSITIVE, identity=0.0, metric="scale_y")] = 0.05
    """Log-scale."""
    shear: Annotated[float, Number(POSITIVE, identity=0.0, metric="shear")] = 0.05
    """Largest shear."""

    def build(self, *, learnable: bool) -> "Lila":
        """The augmentation at these maxima."""
        return Lila({name: getattr(self, name) for name in NAMES}, learnable=learnable)


class Lila(Affine):
    """A = exp(sum_k u_k eta_k G_k), u ~ U(-1, 1)^6, eta = softplus(raw) when learnable.

    Rotation is at most pi: beyond, the uniform angle would wrap and stop being uniform. A learnt
    one is reflected there, pi + d acting as pi - d. A cap would be a dead end: its gradient is
    exactly zero, so that no later step could take back one that went too far.

    Args:
        maxima: eta by name, all of NAMES.
        learnable: whether gradient steps move them.
    """

    generators_66: Tensor

    def __init__(self, maxima: dict[str, float], *, learnable: bool) -> None:
        given = [min(maxima[n], math.pi) if n == "rotation" else maxima[n] for n in NAMES]
        super().__init__(learnable=learnable, is_identity=not learnable and not any(given))
        self.maxima = ConstrainedParameter(given, link=POSITIVE, learnable=learnable, names=NAMES)
        generators = torch.tensor(_GENERATORS, dtype=torch.get_default_dtype()).view(6, 6)
        self.register_buffer("generators_66", generators, persistent=False)

    def sample(self, num: int, generator: torch.Generator) -> Tensor:
        """Exponentials of the generators, each times its maximum and a draw from U(-1, 1)."""
        return exponential(self.exponents(num, generator))

    def exponents(self, num: int, generator: torch.Generator) -> Tensor:
        """What `sample` takes the exponentials of (N, 2, 3)."""
        eta = self.ranges()
        u_N6 = eta.new_empty(num, 6).uniform_(-1, 1, generator=generator)
        return (u_N6 @ (eta[:, None] * self.generators_66)).view(num, 2, 3)

    def ranges(self) -> Tensor:
        """The six maxima (6,) as they act, with rotation at most pi; differentiable."""
        eta_6 = self.maxima.tensor()
        if not self.learnable:
            return eta_6
        turned = math.pi - (torch.remainder(eta_6[_ROTATION], 2 * math.pi) - math.pi).abs()
        is_beyond = torch.zeros_like(eta_6, dtype=torch.bool)
        is_beyond[_ROTATION] = eta_6[_ROTATION].detach() > math.pi
        return torch.where(is_beyond, turned, eta_6)

    def values(self) -> dict[str, float]:
        """The six maxima as they act; rotation at most pi."""
        if not self.learnable:
            return dict(zip(NAMES, self.maxima.numbers(), strict=True))
        with torch.no_grad():
            return dict(zip(NAMES, self.ranges().tolist(), strict=True))
