"""The space of a search: how the values of each field that it varies are drawn.

Optuna has no normal distribution: its samplers are given the quantile, a number from 0 to 1, of
which the value is a function. An option of a `Choice` can be a part of a config, as nested
mappings, with dimensions in the place of values, which exist only where the option is chosen.
"""

import itertools
import json
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from pydantic import Field, field_serializer, field_validator, model_validator

from tuneparts.core import import_path
from tuneparts.core.config import Config
from tuneparts.core.registry import Named, Registry

if TYPE_CHECKING:  # half a second that a search without Optuna need not pay
    from optuna.distributions import BaseDistribution

Value: TypeAlias = Any
"""What a config can hold at a field, as plain values: a number, text, None, a tuple, a mapping."""
_Ask: TypeAlias = "Callable[[str, BaseDistribution], Any]"
"""Draws the parameter of a name from one of Optuna's distributions."""
_Leaf: TypeAlias = "tuple[str, Dimension, Value]"
"""One thing that was decided when a value was drawn, with its path: `optimiser[sgd].lr`."""
MOST_IN_GRID = 1000
"""Steps of a range up to which grid search takes it."""
_EDGE = 1e-9
"""Quantile of a normal number that is never exceeded: six standard deviations."""
_VARY = "vary"
"""Key under which JSON has a dimension that stands inside an option."""


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
            "uniform": "tuneparts.search.space:Uniform",
            "int": "tuneparts.search.space:Int",
            "normal": "tuneparts.search.space:Normal",
            "log_normal": "tuneparts.search.space:LogNormal",
            "choice": "tuneparts.search.space:Choice",
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
        """The value that a draw from `distribution` means; by default itself."""
        return parameter

    @property
    def is_log(self) -> bool:
        """Whether figures draw its values on a logarithmic axis."""
        return bool(getattr(self, "log", False))

    def shown(self, value: Value) -> Any:
        """What figures show of a value: a number or a word; by default itself."""
        return value

    def suggest(self, name: str, ask: _Ask) -> Value:
        return self.decoded(ask(name, self.distribution()))

    def leaves(self, name: str, value: Value) -> "list[_Leaf]":
        """What was decided when a value was drawn: one thing, unless the value is nested."""
        return [(name, self, value)]

    def parts(self) -> "list[Dimension]":
        return [self]


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _perturbed(value: float, rng: np.random.Generator) -> float:
    """A number times 0.8 or 1.2 (Jaderberg et al. 2017)."""
    return value * (0.8 if rng.random() < 0.5 else 1.2)


class Uniform(Dimension):
    """A number from [low, high], evenly or evenly in its logarithm, or on equal steps from `low`.

    Example:
        >>> from tuneparts.core.seeding import numpy_generator
        >>> 1e-4 <= Uniform(1e-4, 1.0, log=True).sample(numpy_generator(0, "lr")) <= 1.0
        True
        >>> Uniform(0.0, 0.5, step=0.1).grid()
        (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
    """

    low: float
    high: float
    log: bool = False
    step: float | None = Field(default=None, gt=0)
    """Distance of the values that can be drawn; None for any number of the range."""

    def __init__(
        self, low: float, high: float, *, log: bool = False, step: float | None = None, **kind: Any
    ) -> None:
        super().__init__(**{"low": low, "high": high, "log": log, "step": step, **kind})

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        low, high, step = self.low, self.high, self.step
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"`low < high` must hold, both finite, but got ({low}, {high})")
        if self.log and low <= 0:
            raise ValueError(f"`low > 0` must hold for `log=True`, but got {low}")
        if self.log and step != type(self).model_fields["step"].default:
            raise ValueError(f"a range has `log=True` or a `step`, not both, but got step {step}")
        rest = (Decimal(str(high)) - Decimal(str(low))) % Decimal(str(step)) if step else 0
        if rest:
            cure = f"write `high={Decimal(str(high)) - rest}`"
            raise ValueError(f"`high` = {high} is not on a step of {step} from `low`; {cure}")
        return self

    def sample(self, rng: np.random.Generator) -> float:
        if self.log:
            return float(math.exp(rng.uniform(math.log(self.low), math.log(self.high))))
        if self.step is not None:
            return self._at(int(rng.integers(self._num_steps + 1)))
        return float(rng.uniform(self.low, self.high))

    def contains(self, value: Value) -> bool:
        is_inside = _is_number(value) and self.low <= value <= self.high
        if not is_inside or self.step is None:
            return is_inside
        return math.isclose(value, self._nearest(value), rel_tol=1e-9, abs_tol=1e-9 * self.step)

    def perturb(self, value: Value, rng: np.random.Generator) -> float:
        near = float(min(max(_perturbed(value, rng), self.low), self.high))
        if self.step is None:
            return near
        moved = self._nearest(near)
        if moved == self._nearest(value) and near != value:
            moved += math.copysign(self.step, near - value)
        return self._nearest(min(max(moved, self.low), self.high))

    def grid(self) -> tuple[float, ...] | None:
        if self.step is None or self.log or self._num_steps >= MOST_IN_GRID:
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
        return int((Decimal(str(self.high)) - Decimal(str(self.low))) / Decimal(str(self.step)))

    def _at(self, number: int) -> float:
        """The value on a step, as somebody would write it: 0.3 and not 0.30000000000000004."""
        return type(self.low)(Decimal(str(self.low)) + number * Decimal(str(self.step)))

    def _nearest(self, value: float) -> float:
        assert self.step is not None
        return self._at(min(max(round((value - self.low) / self.step), 0), self._num_steps))


class Int(Uniform):
    """A whole number from low to high, both included, evenly or evenly in the logarithm."""

    low: int
    high: int
    step: int = Field(default=1, gt=0)
    """Distance of the values that can be drawn, from `low` on."""

    def __init__(
        self, low: int, high: int, *, log: bool = False, step: int = 1, **kind: Any
    ) -> None:
        super().__init__(low, high, log=log, step=step, **kind)

    def sample(self, rng: np.random.Generator) -> float:
        if not self.log:
            return super().sample(rng)
        # Half a unit at both ends, as Optuna does it: so the ends are as likely as their share.
        exact = math.exp(rng.uniform(math.log(self.low - 0.5), math.log(self.high + 0.5)))
        return min(max(round(exact), self.low), self.high)

    def contains(self, value: Value) -> bool:
        return super().contains(value) and value == int(value)

    def perturb(self, value: Value, rng: np.random.Generator) -> int:
        exact = _perturbed(value, rng)
        moved = self.low + self.step * round((exact - self.low) / self.step)
        if moved == value:
            moved += self.step if exact > value else -self.step
        return min(max(moved, self.low), self.high)

    def distribution(self) -> "BaseDistribution":
        from optuna.distributions import IntDistribution

        return IntDistribution(self.low, self.high, log=self.log, step=self.step)


class Normal(Dimension):
    """A number from a normal distribution, cut off at `low` and `high` where they are given."""

    mean: float
    std: float = Field(gt=0)
    low: float | None = None
    high: float | None = None

    def __init__(
        self,
        mean: float,
        std: float,
        *,
        low: float | None = None,
        high: float | None = None,
        **kind: Any,
    ) -> None:
        super().__init__(**{"mean": mean, "std": std, "low": low, "high": high, **kind})

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        low, high = self._bounds()
        if not low < high:
            raise ValueError(f"`low < high` must hold, but got ({self.low}, {self.high})")
        if self._quantiles[1] - self._quantiles[0] < _EDGE:
            words = f"more than five standard deviations from the mean {self.mean}"
            raise ValueError(f"(low, high) = ({self.low}, {self.high}): the range is {words}")
        return self

    @property
    def _quantiles(self) -> tuple[float, float]:
        """Where the distribution is cut off, as quantiles of the whole one."""
        low, high = map(self._share_below, self._bounds())
        return max(low, _EDGE), min(high, 1 - _EDGE)

    def sample(self, rng: np.random.Generator) -> float:
        return self.decoded(rng.uniform(*self._quantiles))

    def contains(self, value: Value) -> bool:
        low, high = self._bounds()
        return _is_number(value) and low <= value <= high

    def perturb(self, value: Value, rng: np.random.Generator) -> float:
        low, high = self._bounds()
        return float(min(max(_perturbed(value, rng), low), high))

    def distribution(self) -> "BaseDistribution":
        from optuna.distributions import FloatDistribution

        return FloatDistribution(*self._quantiles)

    def encoded(self, value: float) -> float:
        low, high = self._quantiles
        return min(max(self._share_below(value), low), high)

    def decoded(self, parameter: float) -> float:
        from scipy.special import ndtri  # slow to import, and few searches need it

        low, high = self._bounds()
        return min(max(self._value(self.mean + self.std * float(ndtri(parameter))), low), high)

    def _bounds(self) -> tuple[float, float]:
        low, high = self.low, self.high
        return -math.inf if low is None else low, math.inf if high is None else high

    def _share_below(self, value: float) -> float:
        from scipy.special import ndtr

        return float(ndtr((self._normal(value) - self.mean) / self.std))

    def _normal(self, value: float) -> float:
        """The number that has the normal distribution; `_value` undoes it."""
        return value

    def _value(self, normal: float) -> float:
        return normal


class LogNormal(Normal):
    """A positive number whose natural logarithm has a normal distribution.

    `mean` and `std` are those of the logarithm; `low` and `high` those of the number itself.
    """

    def __init__(self, mean: float, std: float, **bounds: Any) -> None:
        super().__init__(mean, std, **bounds)

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

    def _normal(self, value: float) -> float:
        return math.log(value) if value > 0 else -math.inf

    def _value(self, normal: float) -> float:
        return math.exp(normal)


class Choice(Dimension):
    """One of a few values, evenly.

    Options are anything that a config can hold: numbers, text, None, tuples, parts of a config as
    mappings or as config objects. With names, `{"sgd": {...}, "adam": {...}}`, figures and Optuna
    call them by these. Inside an option dimensions may stand in the place of values.

    Example:
        >>> optimiser = Choice(
        ...     {
        ...         "sgd": {"kind": "sgd", "momentum": Choice([0.0, 0.9])},
        ...         "adam": {"kind": "adam"},
        ...     }
        ... )
        >>> optimiser.grid()
        ({'kind': 'sgd', 'momentum': 0.0}, {'kind': 'sgd', 'momentum': 0.9}, {'kind': 'adam'})
    """

    options: tuple[Any, ...] | dict[str, Any] = Field(min_length=1)

    def __init__(self, options: Sequence[Any] | Mapping[str, Any], **kind: Any) -> None:
        super().__init__(**{"options": options, **kind})

    @field_validator("options", mode="before")
    @classmethod
    def _plain_options(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(name): _plain(option) for name, option in value.items()}
        return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value

    @field_serializer("options")
    def _dump_options(self, options: Any) -> Any:
        return _written(options)

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        bare = [label for label, option in self._labelled() if isinstance(option, Dimension)]
        if bare:
            raise ValueError(f"option {bare} is a dimension by itself; vary the field by that")
        nested = [label for label, option in self._labelled() if _dimensions(option)]
        if len(set(nested)) < len(nested):
            raise ValueError(f"options have names of their own, but some of {nested} occur twice")
        return self

    def sample(self, rng: np.random.Generator) -> Value:
        options = self._options()
        return _drawn(options[int(rng.integers(len(options)))], rng)

    def contains(self, value: Value) -> bool:
        return self.option_of(value) is not None

    def perturb(self, value: Value, rng: np.random.Generator) -> Value:
        """Move to the option before or after, in the order given; an end may stay where it is."""
        options, here = self._options(), self.option_of(value)
        if here is None:
            return self.sample(rng)
        if _dimensions(options[here]):  # a state of one optimiser is of no use to another
            return _mapped(options[here], lambda dim, _, at: dim.perturb(at, rng), at=_plain(value))
        there = here + (1 if rng.random() < 0.5 else -1)
        return _drawn(options[min(max(there, 0), len(options) - 1)], rng)

    def grid(self) -> tuple[Value, ...] | None:
        found: list[Value] = []
        for option in self._options():
            grids = [dim.grid() for dim in _dimensions(option)]
            known = [grid for grid in grids if grid is not None]
            number = math.prod(map(len, known))
            if len(known) < len(grids) or len(found) + number > MOST_IN_GRID:
                return None
            for one in map(iter, itertools.product(*known)):
                found.append(_mapped(option, lambda *_, left=one: next(left)))
        return tuple(found)

    def examples(self, rng: np.random.Generator) -> tuple[Value, ...]:
        return tuple(_drawn(option, rng) for option in self._options())

    def distribution(self) -> "BaseDistribution":
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution([label for label, _ in self._labelled()])

    def encoded(self, value: Value) -> Any:
        """What Optuna and figures call the option of a value."""
        here = self.option_of(value)
        return None if here is None else self._labelled()[here][0]

    def shown(self, value: Value) -> Any:
        label = self.encoded(value)
        return label if _is_number(label) else str(label)

    def suggest(self, name: str, ask: _Ask) -> Value:
        label = ask(name, self.distribution())
        option = next(option for known, option in self._labelled() if _same(known, label))
        return _mapped(option, lambda dim, inner, _: dim.suggest(inner, ask), f"{name}[{label}]")

    def leaves(self, name: str, value: Value) -> "list[_Leaf]":
        value = _plain(value)
        found, here = super().leaves(name, value), self.option_of(value)
        if here is not None:
            label, option = self._labelled()[here]
            inner = f"{name}[{label}]"
            _mapped(option, lambda dim, path, at: found.extend(dim.leaves(path, at)), inner, value)
        return found

    def parts(self) -> list[Dimension]:
        return [self, *(part for dim in _dimensions(self._options()) for part in dim.parts())]

    def option_of(self, value: Value) -> int | None:
        """Number of the first option that a value, which may have more fields, can be of."""
        value = _plain(value)
        return next((i for i, one in enumerate(self._options()) if _fits(one, value)), None)

    def _options(self) -> tuple[Any, ...]:
        return tuple(self.options.values() if isinstance(self.options, dict) else self.options)

    def _labelled(self) -> list[tuple[Any, Any]]:
        """The options with their names: one that was given none is called by itself or its JSON."""
        if isinstance(self.options, dict):
            return list(self.options.items())
        return [
            (one if _is_simple(one) else json.dumps(_written(one), sort_keys=True), one)
            for one in self.options
        ]


def _plain(value: Any) -> Any:
    """A value as a config's JSON has it, but for lists, which are tuples; dimensions stay."""
    if isinstance(value, Config) and not isinstance(value, Dimension):
        value = value.model_dump()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        if set(value) == {_VARY}:
            return Dimension.made_from(value[_VARY])
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"a value that travels as JSON is finite, but got {value}")
    if isinstance(value, Dimension) or _is_simple(value):
        return value
    if callable(value):
        return import_path.of(value)
    raise ValueError(
        f"{value!r:.100} is not what a config can hold: a number, text, None, a tuple, a mapping, "
        "a config, or a function by its name"
    )


def _is_simple(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _written(tree: Any) -> Any:
    return _mapped(tree, lambda dim, *_: {_VARY: dim.model_dump(mode="json")})


def _same(a: Any, b: Any) -> bool:
    """Whether two values are equal, where True is not 1."""
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def _mapped(
    tree: Any, change: Callable[[Dimension, str, Any], Any], name: str = "", at: Any = None
) -> Any:
    """A tree with `change(dimension, its path below name, what at has there)` for dimensions."""
    if isinstance(tree, Dimension):
        return change(tree, name, at)
    if not isinstance(tree, Mapping | tuple):
        return tree
    children = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
    found = {
        key: _mapped(one, change, f"{name}.{key}", None if at is None else at[key])
        for key, one in children
    }
    return found if isinstance(tree, Mapping) else tuple(found.values())


def _dimensions(tree: Any) -> list[Dimension]:
    found: list[Dimension] = []
    _mapped(tree, lambda dim, *_: found.append(dim))
    return found


def _drawn(tree: Any, rng: np.random.Generator) -> Value:
    return _mapped(tree, lambda dim, *_: dim.sample(rng))


def _fits(tree: Any, value: Value) -> bool:
    if isinstance(tree, Dimension):
        return tree.contains(value)
    if isinstance(tree, Mapping):
        return isinstance(value, Mapping) and all(
            key in value and _fits(child, value[key]) for key, child in tree.items()
        )
    if isinstance(tree, tuple):
        return isinstance(value, tuple) and len(value) == len(tree) and all(map(_fits, tree, value))
    return _same(tree, value)
