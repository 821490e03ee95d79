"""The space of a search: a distribution for each field of a method's config that it varies."""

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np
from pydantic import Field, model_validator

from tuneparts.named import Named

if TYPE_CHECKING:  # half a second that a search without Optuna need not pay
    from optuna.distributions import BaseDistribution

Value: TypeAlias = bool | int | float | str | tuple[float, ...]


class Dimension(Named):
    """One field of a config that a search varies, and how its values are drawn.

    A subclass with `sample` is enough for random search, successive halving and population-based
    training; with `distribution` for Optuna too; with `grid` for grid search.

    Example:
        >>> class Even(Dimension):
        ...     largest: int
        ...
        ...     def sample(self, rng):
        ...         return 2 * int(rng.integers(self.largest // 2 + 1))
        >>> Even(largest=10).sample(np.random.default_rng(0))
        10
    """

    noun = "a dimension"
    known: ClassVar = {
        "uniform": "tuneparts.search.space:Uniform",
        "choice": "tuneparts.search.space:Choice",
    }

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> Value:
        """Draw a value."""

    def perturb(self, value: Value, rng: np.random.Generator) -> Value:  # noqa: ARG002
        """A value near another one; without a notion of nearness a new draw."""
        return self.sample(rng)

    def grid(self) -> tuple[Value, ...] | None:
        """All values, for grid search; None when they cannot be counted."""
        return None

    def distribution(self) -> "BaseDistribution":
        """The same distribution in Optuna's words, for its samplers."""
        raise NotImplementedError


class Uniform(Dimension):
    """A number drawn evenly from [low, high], or evenly in its logarithm.

    Example:
        >>> from tuneparts.seeding import numpy_generator
        >>> 1e-4 <= Uniform(low=1e-4, high=1.0, log=True).sample(numpy_generator(0, "lr")) <= 1.0
        True
    """

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
        if self.log:
            return float(math.exp(rng.uniform(math.log(self.low), math.log(self.high))))
        return float(rng.uniform(self.low, self.high))

    def perturb(self, value: Value, rng: np.random.Generator) -> float:
        """Multiply a value by 0.8 or 1.2, and keep it in the range (Jaderberg et al. 2017)."""
        factor = 0.8 if rng.random() < 0.5 else 1.2
        assert isinstance(value, int | float)
        return float(min(max(value * factor, self.low), self.high))

    def distribution(self) -> "BaseDistribution":
        from optuna.distributions import FloatDistribution

        return FloatDistribution(self.low, self.high, log=self.log)


class Choice(Dimension):
    """One of a few values; of our own dimensions the one that grid search takes."""

    options: tuple[Value, ...] = Field(min_length=1)

    def sample(self, rng: np.random.Generator) -> Value:
        return self.options[int(rng.integers(len(self.options)))]

    def perturb(self, value: Value, rng: np.random.Generator) -> Value:
        """Move to the option before or after, in the order given; an end may stay where it is."""
        here = self.options.index(value)
        there = here + (1 if rng.random() < 0.5 else -1)
        return self.options[min(max(there, 0), len(self.options) - 1)]

    def grid(self) -> tuple[Value, ...]:
        return self.options

    def distribution(self) -> "BaseDistribution":
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution(self.options)
