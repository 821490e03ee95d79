"""What a dimension is: one field of a config that a search varies; and dimensions that are numbers.

Optuna has no normal distribution. Its samplers are given the quantile, a number from 0 to 1, of
which the value is a function; so what they think of as even is normal in the value.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from pydantic import Field, model_validator

from tuneparts.core.registry import Named, Registry

if TYPE_CHECKING:  # half a second that a search without Optuna need not pay
    from optuna.distributions import BaseDistribution

Value: TypeAlias = Any
"""What a config can hold at a field, as plain values: a number, text, None, a tuple, a mapping."""
Ask: TypeAlias = "Callable[[str, BaseDistribution], Any]"
"""Draws the parameter of a name from one of Optuna's distributions."""
MOST_IN_GRID = 1000
"""Steps of a range up to which grid search takes it."""
_EDGE = 1e-9
"""Quantile of a normal number that is never exceeded: six standard deviations."""


@dataclass(frozen=True)
class Leaf:
    """One thing that was decided when a value was drawn; a nested value has several."""

    name: str
    """Path of the field; below an option of a choice `optimiser[sgd].lr`."""
    dimension: "Dimension"
    value: Value


class Dimension(Named):
    """One field of a config that a search varies, and how its values are drawn.

    A subclass with `sample` is enough for random search, successive halving and population-based
    training; with `distribution` for Optuna too; with `grid` for grid search; with `contains` its
    points to try first are checked.

    Example:
        >>> class Even(Dimension):
        ...     largest: int
        ...
        ...     def sample(self, rng):
        ...         return 2 * int(rng.integers(self.largest // 2 + 1))
        >>> Even(largest=10).sample(np.random.default_rng(0))
        10
    """

    registry = Registry(
        "dimension",
        {
            "uniform": "tuneparts.search.space.dimension:Uniform",
            "int": "tuneparts.search.space.dimension:Int",
            "normal": "tuneparts.search.space.dimension:Normal",
            "log_normal": "tuneparts.search.space.dimension:LogNormal",
            "choice": "tuneparts.search.space.choice:Choice",
        },
    )

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> Value:
        """Draw a value."""

    def contains(self, value: Value) -> bool:  # noqa: ARG002
        """Whether a value could be drawn; by default any, because the class does not say."""
        return True

    def perturb(self, value: Value, rng: np.random.Generator) -> Value:  # noqa: ARG002
        """A value near another one; without a notion of nearness a new draw."""
        return self.sample(rng)

    def grid(self) -> tuple[Value, ...] | None:
        """All values, for grid search; None when they cannot be counted."""
        return None

    def examples(self, rng: np.random.Generator) -> tuple[Value, ...]:  # noqa: ARG002
        """Values that are tried on the config before anything runs, besides one draw."""
        return ()

    def distribution(self) -> "BaseDistribution":
        """The same distribution in Optuna's words, for its samplers."""
        raise NotImplementedError

    def encoded(self, value: Value) -> Any:
        """What a value is under `distribution`; by default itself."""
        return value

    def decoded(self, parameter: Any) -> Value:
        """The value that a draw from `distribution` stands for; by default itself."""
        return parameter

    @property
    def is_log(self) -> bool:
        """Whether figures draw its values on a logarithmic axis."""
        return bool(getattr(self, "log", False))

    def shown(self, value: Value) -> Any:
        """What figures show of a value: a number or a word; by default itself."""
        return value

    def suggest(self, name: str, ask: Ask) -> Value:
        """Draw a value by Optuna, as a parameter of this name."""
        return self.decoded(ask(name, self.distribution()))

    def leaves(self, name: str, value: Value) -> Iterator[Leaf]:
        """What was decided when a value was drawn: one thing, unless the value is nested."""
        yield Leaf(name, self, value)

    def parts(self) -> Iterator["Dimension"]:
        """The dimension itself, and those inside of it."""
        yield self


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


def _perturbed(value: float, rng: np.random.Generator) -> float:
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
        near = float(min(max(_perturbed(value, rng), self.low), self.high))
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
        exact = _perturbed(value, rng)
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
        if self.quantiles[1] - self.quantiles[0] < _EDGE:
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
        return max(_share_below(low), _EDGE), min(_share_below(high), 1 - _EDGE)

    def sample(self, rng: np.random.Generator) -> float:
        return self.decoded(rng.uniform(*self.quantiles))

    def contains(self, value: Value) -> bool:
        low, high = self._bounds()
        return is_number(value) and low <= value <= high

    def perturb(self, value: Value, rng: np.random.Generator) -> float:
        """Multiply a value by 0.8 or 1.2, and keep it in the range (Jaderberg et al. 2017)."""
        low, high = self._bounds()
        return float(min(max(_perturbed(value, rng), low), high))

    def distribution(self) -> "BaseDistribution":
        from optuna.distributions import FloatDistribution

        return FloatDistribution(*self.quantiles)

    def encoded(self, value: float) -> float:
        low, high = self.quantiles
        return min(max(_share_below(self._standard(value)), low), high)

    def decoded(self, parameter: float) -> float:
        low, high = self._bounds()
        return min(max(self._value(_quantile(parameter)), low), high)

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


def _share_below(standard: float) -> float:
    from scipy.special import ndtr  # slow to import, and few searches need it

    return float(ndtr(standard))


def _quantile(share: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(share))
