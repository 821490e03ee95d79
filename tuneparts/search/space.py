"""The space of a search: a distribution for each field of a method's config that it varies."""

import math
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import Field, model_validator

from tuneparts.config import Config

Value: TypeAlias = bool | int | float | str | tuple[float, ...]


class Uniform(Config):
    """A number drawn evenly from [low, high], or evenly in its logarithm.

    Example:
        >>> from tuneparts.seeding import numpy_generator
        >>> 1e-4 <= Uniform(low=1e-4, high=1.0, log=True).sample(numpy_generator(0, "lr")) <= 1.0
        True
    """

    kind: Literal["uniform"] = "uniform"
    low: float
    high: float
    log: bool = False

    @model_validator(mode="after")
    def _check_bounds(self) -> "Uniform":
        if not self.low < self.high:
            raise ValueError(f"`low < high` must hold, but got ({self.low}, {self.high})")
        if self.log and self.low <= 0:
            raise ValueError(f"`low > 0` must hold for `log=True`, but got {self.low}")
        return self

    def sample(self, rng: np.random.Generator) -> float:
        """Draw a value."""
        if self.log:
            return float(math.exp(rng.uniform(math.log(self.low), math.log(self.high))))
        return float(rng.uniform(self.low, self.high))

    def perturb(self, value: Value, rng: np.random.Generator) -> float:
        """Multiply a value by 0.8 or 1.2, and keep it in the range (Jaderberg et al. 2017)."""
        factor = 0.8 if rng.random() < 0.5 else 1.2
        assert isinstance(value, int | float)
        return float(min(max(value * factor, self.low), self.high))


class Choice(Config):
    """One of a few values; the only kind of dimension that grid search takes."""

    kind: Literal["choice"] = "choice"
    options: tuple[Value, ...] = Field(min_length=1)

    def sample(self, rng: np.random.Generator) -> Value:
        """Draw one of the options."""
        return self.options[int(rng.integers(len(self.options)))]

    def perturb(self, value: Value, rng: np.random.Generator) -> Value:
        """Move to the option before or after, in the order given; an end may stay where it is."""
        here = self.options.index(value)
        there = here + (1 if rng.random() < 0.5 else -1)
        return self.options[min(max(there, 0), len(self.options) - 1)]


Dimension: TypeAlias = Annotated[Uniform | Choice, Field(discriminator="kind")]
