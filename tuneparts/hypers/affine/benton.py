"""Affine motions in the parametrisation of Augerino (Benton et al. 2020).

Widths instead of maxima (a width w draws from plus-minus w / 2), translations scaled by 0.1,
and one isotropic scale with an area-preserving stretch instead of a scale per axis.
"""

from typing import Annotated, Literal

import torch
from torch import Tensor

from tuneparts.hypers.affine.augmentation import Affine, AffineConfig
from tuneparts.hypers.affine.exponential import exponential
from tuneparts.hypers.constrained import POSITIVE, ConstrainedParameter
from tuneparts.hypers.hyper import Number

NAMES = ("translate_x", "translate_y", "rotation", "scale", "stretch", "shear")

# First two rows of the generators, in the order of NAMES.
_GENERATORS = (
    ((0, 0, 0.1), (0, 0, 0)),
    ((0, 0, 0), (0, 0, 0.1)),
    ((0, -1, 0), (1, 0, 0)),
    ((1, 0, 0), (0, 1, 0)),
    ((1, 0, 0), (0, -1, 0)),
    ((0, 1, 0), (1, 0, 0)),
)
# Largest motion per unit of width.
_MAXIMUM_PER_WIDTH = (0.05, 0.05, 0.5, 0.5, 0.5, 0.5)


class BentonConfig(AffineConfig):
    """Largest motion of each generator (not its width), so that values compare with `lila`.

    What is not given is 0.05, also when fixed: hold a motion out by setting it to 0.
    """

    kind: Literal["benton"] = "benton"
    rotation: Annotated[float, Number(POSITIVE, identity=0.0, metric="rotation")] = 0.05
    """Radians."""
    translate_x: Annotated[float, Number(POSITIVE, identity=0.0, metric="translate_x")] = 0.05
    """Half image widths."""
    translate_y: Annotated[float, Number(POSITIVE, identity=0.0, metric="translate_y")] = 0.05
    """Half image heights."""
    scale: Annotated[float, Number(POSITIVE, identity=0.0, metric="scale")] = 0.05
    """Log-scale of both axes."""
    stretch: Annotated[float, Number(POSITIVE, identity=0.0, metric="stretch")] = 0.05
    """Log-scale of x, and its negative of y."""
    shear: Annotated[float, Number(POSITIVE, identity=0.0, metric="shear")] = 0.05
    """Largest shear."""

    def build(self, *, learnable: bool) -> "Benton":
        """The augmentation at these maxima."""
        return Benton({name: getattr(self, name) for name in NAMES}, learnable=learnable)


class Benton(Affine):
    """A = exp(sum_k (u_k - 1/2) w_k g_k), u ~ U(0, 1)^6, w = softplus(raw) when learnable.

    Args:
        maxima: largest motions by name, all of NAMES.
        learnable: whether gradient steps move the widths.
    """

    generators_66: Tensor

    def __init__(self, maxima: dict[str, float], *, learnable: bool) -> None:
        widths = [maxima[name] / unit for name, unit in zip(NAMES, _MAXIMUM_PER_WIDTH, strict=True)]
        super().__init__(learnable=learnable, is_identity=not learnable and not any(widths))
        self.widths = ConstrainedParameter(widths, link=POSITIVE, learnable=learnable, names=NAMES)
        generators = torch.tensor(_GENERATORS, dtype=torch.get_default_dtype()).view(6, 6)
        self.register_buffer("generators_66", generators, persistent=False)

    def sample(self, num: int, generator: torch.Generator) -> Tensor:
        """Exponentials of the generators, each times its width and a draw from U(-1/2, 1/2)."""
        return exponential(self.exponents(num, generator))

    def exponents(self, num: int, generator: torch.Generator) -> Tensor:
        """What `sample` takes the exponentials of (N, 2, 3)."""
        widths = self.widths.tensor()
        z_N6 = widths.new_empty(num, 6).uniform_(-0.5, 0.5, generator=generator)
        return (z_N6 @ (widths[:, None] * self.generators_66)).view(num, 2, 3)

    def values(self) -> dict[str, float]:
        """The six largest motions: half the widths, translations times 0.1."""
        numbers = self.widths.numbers()
        return {
            name: width * unit
            for name, width, unit in zip(NAMES, numbers, _MAXIMUM_PER_WIDTH, strict=True)
        }
