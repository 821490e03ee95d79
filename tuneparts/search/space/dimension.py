"""What a dimension is: one field of a config that a search varies, and how its values are drawn."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tuneparts.core.registry import Named, Registry

if TYPE_CHECKING:  # half a second that a search without Optuna need not pay
    from optuna.distributions import BaseDistribution

Value: TypeAlias = Any
"""What a config can hold at a field, as plain values: a number, text, None, a tuple, a mapping."""
Ask: TypeAlias = "Callable[[str, BaseDistribution], Any]"
"""Draws the parameter of a name from one of Optuna's distributions."""


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
            "uniform": "tuneparts.search.space.ranges:Uniform",
            "int": "tuneparts.search.space.ranges:Int",
            "normal": "tuneparts.search.space.normal:Normal",
            "log_normal": "tuneparts.search.space.normal:LogNormal",
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
        """Draw a value by Optuna.

        Args:
            name: of the parameter.
            ask: draws from a distribution.
        """
        return self.decoded(ask(name, self.distribution()))

    def leaves(self, name: str, value: Value) -> Iterator[Leaf]:
        """What was decided when a value was drawn: one thing, unless the value is nested."""
        yield Leaf(name, self, value)

    def parts(self) -> Iterator["Dimension"]:
        """The dimension itself, and those inside of it."""
        yield self
