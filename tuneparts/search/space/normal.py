"""Numbers from a normal distribution, for a belief about where the best value lies.

Optuna has no normal distribution. Its samplers are given the quantile, a number from 0 to 1, of
which the value is a function; so what they think of as even is normal in the value.
"""

import math
from typing import TYPE_CHECKING, Self

import numpy as np
from pydantic import Field, model_validator

from tuneparts.search.space.dimension import Dimension, Value
from tuneparts.search.space.ranges import is_number, perturbed

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

EDGE = 1e-9
"""Quantile that is never exceeded: six standard deviations."""


class Normal(Dimension):
    """A number from a normal distribution, cut off at `low` and `high` where they are given.

    Example:
        >>> belief = Normal(mean=0.5, std=0.2, low=0.0, high=1.0)
        >>> 0.0 <= belief.sample(np.random.default_rng(0)) <= 1.0
        True
    """

    mean: float
    std: float = Field(gt=0)
    low: float | None = None
    high: float | None = None

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        low, high = self._bounds()
        if not low < high:
            raise ValueError(f"`low < high` must hold, but got ({self.low}, {self.high})")
        if self.quantiles[1] - self.quantiles[0] < EDGE:
            raise ValueError(
                f"the range ({self.low}, {self.high}) has some of the distribution in it, but it "
                f"is more than five standard deviations away from the mean {self.mean}; move "
                "either"
            )
        return self

    @property
    def quantiles(self) -> tuple[float, float]:
        """Where the distribution is cut off, as quantiles of the whole one."""
        low, high = (self._standard(bound) for bound in self._bounds())
        return max(_ndtr(low), EDGE), min(_ndtr(high), 1 - EDGE)

    def sample(self, rng: np.random.Generator) -> float:
        return self.decoded(rng.uniform(*self.quantiles))

    def contains(self, value: Value) -> bool:
        low, high = self._bounds()
        return is_number(value) and low <= value <= high

    def perturb(self, value: Value, rng: np.random.Generator) -> float:
        """Multiply a value by 0.8 or 1.2, and keep it in the range (Jaderberg et al. 2017)."""
        low, high = self._bounds()
        return float(min(max(perturbed(value, rng), low), high))

    def distribution(self) -> "BaseDistribution":
        from optuna.distributions import FloatDistribution

        return FloatDistribution(*self.quantiles)

    def encoded(self, value: float) -> float:
        low, high = self.quantiles
        return min(max(_ndtr(self._standard(value)), low), high)

    def decoded(self, parameter: float) -> float:
        low, high = self._bounds()
        return min(max(self._value(_ndtri(parameter)), low), high)

    def _bounds(self) -> tuple[float, float]:
        return (
            -math.inf if self.low is None else self.low,
            math.inf if self.high is None else self.high,
        )

    def _standard(self, value: float) -> float:
        """How many standard deviations a value lies above the mean."""
        return (value - self.mean) / self.std

    def _value(self, standard: float) -> float:
        return self.mean + self.std * standard


class LogNormal(Normal):
    """A positive number whose natural logarithm has a normal distribution.

    `mean` and `std` are those of the logarithm; `low` and `high` those of the number itself.

    Example:
        >>> around_a_thousandth = LogNormal(mean=math.log(1e-3), std=1.0)
        >>> around_a_thousandth.sample(np.random.default_rng(0)) > 0
        True
    """

    @model_validator(mode="after")
    def _check_sign(self) -> Self:
        if self.low is not None and self.low <= 0:
            raise ValueError(f"`low > 0` must hold for a log-normal number, but got {self.low}")
        return self

    @property
    def is_log(self) -> bool:
        return True

    def contains(self, value: Value) -> bool:
        return super().contains(value) and value > 0

    def _bounds(self) -> tuple[float, float]:
        low, high = super()._bounds()
        return max(low, 0.0), high

    def _standard(self, value: float) -> float:
        if value <= 0:
            return -math.inf
        return (math.log(value) - self.mean) / self.std if math.isfinite(value) else math.inf

    def _value(self, standard: float) -> float:
        return math.exp(self.mean + self.std * standard)


def _ndtr(value: float) -> float:
    from scipy.special import ndtr  # takes long to import, and few searches draw normal values

    return float(ndtr(value))


def _ndtri(share: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(share))
