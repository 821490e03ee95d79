"""Affine motions with a free lower and upper end for each component (Schwoebel et al. 2021)."""

from collections.abc import Mapping
from typing import Literal, Self

import torch
from torch import Tensor

from tuneparts.core import schema
from tuneparts.core.config import Config
from tuneparts.core.errors import UnknownNameError
from tuneparts.hypers.affine.augmentation import Affine, AffineConfig
from tuneparts.hypers.constrained import REAL, ConstrainedParameter

NAMES = ("rotation", "scale_x", "scale_y", "shear_x", "shear_y", "translate_x", "translate_y")
ENDS = ("theta_min", "theta_max")
IDENTITY = (0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0)


class Theta(Config):
    """One end of the range of each component; the identity unless said otherwise."""

    rotation: float = 0.0
    """Radians."""
    scale_x: float = 1.0
    """A factor, not its logarithm."""
    scale_y: float = 1.0
    shear_x: float = 0.0
    shear_y: float = 0.0
    translate_x: float = 0.0
    """Half image widths."""
    translate_y: float = 0.0
    """Half image heights."""

    def components(self) -> tuple[float, ...]:
        """The numbers in the order of NAMES."""
        return tuple(getattr(self, name) for name in NAMES)

    @classmethod
    def near_identity(cls, offset: float) -> "Theta":
        """The identity with `offset` added to every component."""
        return cls(**{n: i + offset for n, i in zip(NAMES, IDENTITY, strict=True)})


class SchwoebelConfig(AffineConfig):
    """Both ends of each component; they start 0.02 around the identity."""

    kind: Literal["schwoebel"] = "schwoebel"
    theta_min: Theta = Theta.near_identity(-0.02)
    theta_max: Theta = Theta.near_identity(0.02)

    def build(self, *, learnable: bool) -> "Schwoebel":
        """The augmentation with these ends."""
        return Schwoebel(
            self.theta_min.components(), self.theta_max.components(), learnable=learnable
        )

    def metrics(self, name: str) -> tuple[schema.Metric, ...]:  # noqa: ARG002
        return tuple(schema.lookup(f"hyper/{end}.*") for end in ENDS)

    @classmethod
    def owns(cls, metric: str, name: str) -> bool:
        return metric in cls.known(name)

    @classmethod
    def known(cls, name: str) -> list[str]:  # noqa: ARG003
        return [f"{end}.{component}" for end in ENDS for component in NAMES]

    @classmethod
    def identity(cls) -> Self:
        return cls(theta_min=Theta(), theta_max=Theta())

    def at(self, found: Mapping[str, float], *, name: str) -> Self:
        for metric in found:
            if not self.owns(metric, name):
                raise UnknownNameError(self._noun(name), metric, self.known(name))
        return self.replaced(found)  # a reported name is the path of a field


class Schwoebel(Affine):
    """theta = theta_min + (theta_max - theta_min) eps, eps ~ U(0, 1)^7.

    The matrix is R(rotation) [[1, 0], [shear_y, 1]] [[1, shear_x], [0, 1]] diag(scale_x, scale_y)
    and the offset minus that matrix times the translation: a position p reads at A (p - t).
    Every image and sample has a draw of its own. The ends are unconstrained and may cross.

    Args:
        theta_min: lower ends in the order of NAMES.
        theta_max: upper ends.
        learnable: whether gradient steps move the ends.
    """

    def __init__(
        self, theta_min: tuple[float, ...], theta_max: tuple[float, ...], *, learnable: bool
    ) -> None:
        still = theta_min == theta_max == IDENTITY
        super().__init__(learnable=learnable, is_identity=not learnable and still)
        self.theta_min = ConstrainedParameter(
            theta_min, link=REAL, learnable=learnable, names=NAMES
        )
        self.theta_max = ConstrainedParameter(
            theta_max, link=REAL, learnable=learnable, names=NAMES
        )

    def sample(self, num: int, generator: torch.Generator) -> Tensor:
        """Matrices of components drawn uniformly between their two ends."""
        low, high = self.theta_min.tensor(), self.theta_max.tensor()
        eps_N7 = low.new_empty(num, 7).uniform_(0, 1, generator=generator)
        angle, scale_x, scale_y, shear_x, shear_y, move_x, move_y = torch.lerp(
            low, high, eps_N7
        ).unbind(1)
        cos, sin = angle.cos(), angle.sin()
        # Columns of the product of the shears: (1, shear_y) and (shear_x, 1 + shear_x shear_y).
        corner = 1 + shear_x * shear_y
        a11 = (cos - sin * shear_y) * scale_x
        a21 = (sin + cos * shear_y) * scale_x
        a12 = (cos * shear_x - sin * corner) * scale_y
        a22 = (sin * shear_x + cos * corner) * scale_y
        offset_x = -(a11 * move_x + a12 * move_y)
        offset_y = -(a21 * move_x + a22 * move_y)
        return torch.stack([a11, a12, offset_x, a21, a22, offset_y], dim=1).view(num, 2, 3)

    def values(self) -> dict[str, float]:
        """Both ends of each component as `theta_min.rotation`, `theta_max.rotation`, ..."""
        ends = {"theta_min": self.theta_min.numbers(), "theta_max": self.theta_max.numbers()}
        return {
            f"{end}.{name}": number
            for end, numbers in ends.items()
            for name, number in zip(NAMES, numbers, strict=True)
        }
