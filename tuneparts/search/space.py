"""What a search may vary: one distribution per dotted path of a method's config."""

import math
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import Field, model_validator

from tuneparts.config import Config

Value: TypeAlias = bool | int | float | str | tuple[float, ...]


class Uniform(Config):
    """A number drawn evenly from [low, high], or evenly in its logarithm."""

    kind: Literal["uniform"] = "uniform"
    low: float
    high: float
    log: bool = False

    @model_validator(mode="after")
    def _ordered(self) -> "Uniform":
        if not self.low < self.high:
            raise ValueError(f"`low < high` must hold, but got ({self.low}, {self.high})")
        if self.log and self.low <= 0:
            raise ValueError(f"`low > 0` must hold for `log=True`, but got {self.low}")
        return self

    def sample(self, rng: np.random.Generator) -> float:
        """One draw."""
        if self.log:
            return float(math.exp(rng.uniform(math.log(self.low), math.log(self.high))))
        return float(rng.uniform(self.low, self.high))

    def perturb(self, value: Value, rng: np.random.Generator) -> float:
        """Times 0.8 or 1.2, kept inside the range (Jaderberg et al. 2017)."""
        factor = 0.8 if rng.random() < 0.5 else 1.2
        assert isinstance(value, int | float)
        return float(min(max(value * factor, self.low), self.high))


class Choice(Config):
    """One of a few values; the only dimension that grid search takes."""

    kind: Literal["choice"] = "choice"
    options: tuple[Value, ...] = Field(min_length=1)

    def sample(self, rng: np.random.Generator) -> Value:
        """One draw."""
        return self.options[int(rng.integers(len(self.options)))]

    def perturb(self, value: Value, rng: np.random.Generator) -> Value:
        """A neighbour in the order given."""
        here = self.options.index(value)
        there = here + (1 if rng.random() < 0.5 else -1)
        return self.options[min(max(there, 0), len(self.options) - 1)]


Dimension: TypeAlias = Annotated[Uniform | Choice, Field(discriminator="kind")]
