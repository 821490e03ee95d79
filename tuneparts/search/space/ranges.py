"""Numbers from a range: real or whole, evenly, evenly in the logarithm, or on steps."""

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Self

import numpy as np
from pydantic import Field, model_validator

from tuneparts.search.space.dimension import Dimension, Value

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

MOST_IN_GRID = 1000
"""Steps of a range up to which grid search takes it."""


def is_number(value: Value) -> bool:
    """Whether a value is a finite number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_range(low: float, high: float, *, log: bool) -> None:
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"a range has finite ends, but got ({low}, {high})")
    if not low < high:
        raise ValueError(f"`low < high` must hold, but got ({low}, {high})")
    if log and low <= 0:
        raise ValueError(f"`low > 0` must hold for `log=True`, but got {low}")


def _check_step(low: float, high: float, step: float, *, log: bool, unit: float | None) -> None:
    """Refuse steps that miss the upper end, or that a logarithm would distort."""
    if log and step != unit:
        raise ValueError(f"a range has `log=True` or a `step`, not both, but got step {step}")
    rest = (Decimal(str(high)) - Decimal(str(low))) % Decimal(str(step))
    if rest:
        near = Decimal(str(high)) - rest
        raise ValueError(
            f"`high` is a whole number of steps above `low`, but got ({low}, {high}) with step "
            f"{step}; the last step is at {near}, so write `high={near}`"
        )


def perturbed(value: float, rng: np.random.Generator) -> float:
    """A number times 0.8 or 1.2 (Jaderberg et al. 2017)."""
    return value * (0.8 if rng.random() < 0.5 else 1.2)


class Uniform(Dimension):
    """A number from [low, high], evenly or evenly in its logarithm, or on equal steps from `low`.

    Example:
        >>> from tuneparts.core.seeding import numpy_generator
        >>> 1e-4 <= Uniform(low=1e-4, high=1.0, log=True).sample(numpy_generator(0, "lr")) <= 1.0
        True
        >>> Uniform(low=0.0, high=0.5, step=0.1).grid()
        (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
    """

    low: float
    high: float
    log: bool = False
    step: float | None = Field(default=None, gt=0)
    """Distance of the values that can be drawn; None for any number of the range."""

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        _check_range(self.low, self.high, log=self.log)
        if self.step is not None:
            _check_step(self.low, self.high, self.step, log=self.log, unit=None)
        return self

    def sample(self, rng: np.random.Generator) -> float:
        if self.step is not None:
            return self._at(int(rng.integers(self._num_steps + 1)))
        if self.log:
            return float(math.exp(rng.uniform(math.log(self.low), math.log(self.high))))
        return float(rng.uniform(self.low, self.high))

    def contains(self, value: Value) -> bool:
        is_inside = is_number(value) and self.low <= value <= self.high
        if not is_inside or self.step is None:
            return is_inside
        return math.isclose(value, self._nearest(value), rel_tol=1e-9, abs_tol=1e-9 * self.step)

    def perturb(self, value: Value, rng: np.random.Generator) -> float:
        """Multiply a value by 0.8 or 1.2, and keep it in the range (Jaderberg et al. 2017).

        On steps it goes to the nearest one, and one step away where that is none.
        """
        near = float(min(max(perturbed(value, rng), self.low), self.high))
        if self.step is None:
            return near
        moved = self._nearest(near)
        if moved == self._nearest(value) and near != value:
            moved += math.copysign(self.step, near - value)
        return self._nearest(min(max(moved, self.low), self.high))

    def grid(self) -> tuple[float, ...] | None:
        if self.step is None or self._num_steps >= MOST_IN_GRID:
            return None
        return tuple(self._at(number) for number in range(self._num_steps + 1))

    def examples(self, rng: np.random.Generator) -> tuple[float, ...]:  # noqa: ARG002
        return () if self.step is None else (self.low, self.high)

    def distribution(self) -> "BaseDistribution":
        from optuna.distributions import FloatDistribution

        return FloatDistribution(self.low, self.high, log=self.log, step=self.step)

    def decoded(self, parameter: float) -> float:
        return parameter if self.step is None else self._nearest(parameter)

    @property
    def _num_steps(self) -> int:
        assert self.step is not None
        return int((Decimal(str(self.high)) - Decimal(str(self.low))) / Decimal(str(self.step)))

    def _at(self, number: int) -> float:
        """The value on a step, as somebody would write it: 0.3 and not 0.30000000000000004."""
        return float(Decimal(str(self.low)) + number * Decimal(str(self.step)))

    def _nearest(self, value: float) -> float:
        assert self.step is not None
        return self._at(min(max(round((value - self.low) / self.step), 0), self._num_steps))


class Int(Dimension):
    """A whole number from low to high, both included, evenly or evenly in the logarithm.

    Example:
        >>> Int(low=16, high=64, step=16).grid()
        (16, 32, 48, 64)
    """

    low: int
    high: int
    log: bool = False
    step: int = Field(default=1, gt=0)
    """Distance of the values that can be drawn, from `low` on."""

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        _check_range(self.low, self.high, log=self.log)
        _check_step(self.low, self.high, self.step, log=self.log, unit=1)
        return self

    def sample(self, rng: np.random.Generator) -> int:
        if not self.log:
            return self.low + self.step * int(rng.integers((self.high - self.low) // self.step + 1))
        # Half a unit at both ends, as Optuna does it: so the ends are as likely as their share.
        exact = math.exp(rng.uniform(math.log(self.low - 0.5), math.log(self.high + 0.5)))
        return min(max(round(exact), self.low), self.high)

    def contains(self, value: Value) -> bool:
        return (
            is_number(value)
            and value == int(value)
            and self.low <= value <= self.high
            and (int(value) - self.low) % self.step == 0
        )

    def perturb(self, value: Value, rng: np.random.Generator) -> int:
        """Multiply by 0.8 or 1.2, to the nearest step but at least one step away; stay inside."""
        exact = perturbed(value, rng)
        moved = self.low + self.step * round((exact - self.low) / self.step)
        if moved == value:
            moved += self.step if exact > value else -self.step
        return min(max(moved, self.low), self.high)

    def grid(self) -> tuple[int, ...] | None:
        values = range(self.low, self.high + 1, self.step)
        return tuple(values) if len(values) <= MOST_IN_GRID and not self.log else None

    def examples(self, rng: np.random.Generator) -> tuple[int, ...]:  # noqa: ARG002
        return self.low, self.high

    def distribution(self) -> "BaseDistribution":
        from optuna.distributions import IntDistribution

        return IntDistribution(self.low, self.high, log=self.log, step=self.step)
