"""A choice between values, and between parts of a config that have dimensions of their own.

An option can be a part of a config, as nested mappings, with dimensions in the place of values.
Those exist only where the option is chosen: momentum belongs to SGD, betas to Adam.
"""

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import Field, field_serializer, field_validator, model_validator

from tuneparts.core import import_path
from tuneparts.core.config import Config
from tuneparts.search.space.dimension import MOST_IN_GRID, Ask, Dimension, Leaf, Value, is_number

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_VARY = "vary"
"""Key under which JSON has a dimension that stands inside an option."""


class Choice(Dimension):
    """One of a few values, evenly.

    Options are anything that a config can hold: numbers, text, None, tuples, parts of a config as
    mappings or as config objects. With names, `{"sgd": {...}, "adam": {...}}`, figures and Optuna
    call them by these. Inside an option dimensions may stand in the place of values.

    Example:
        >>> optimiser = Choice(
        ...     options={
        ...         "sgd": {"kind": "sgd", "momentum": Choice(options=(0.0, 0.9))},
        ...         "adam": {"kind": "adam"},
        ...     }
        ... )
        >>> optimiser.grid()
        ({'kind': 'sgd', 'momentum': 0.0}, {'kind': 'sgd', 'momentum': 0.9}, {'kind': 'adam'})
    """

    options: tuple[Any, ...] | dict[str, Any] = Field(min_length=1)

    @field_validator("options", mode="before")
    @classmethod
    def _plain_options(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(name): plain(option) for name, option in value.items()}
        return tuple(map(plain, value)) if isinstance(value, list | tuple) else value

    @field_serializer("options")
    def _dump_options(self, options: Any) -> Any:
        return _written(options)

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        bare = [label for label, option in self._labelled() if isinstance(option, Dimension)]
        if bare:
            raise ValueError(
                f"an option is a value, or a mapping with dimensions inside, but {bare} is a "
                "dimension by itself; vary the field by it, without a choice around it"
            )
        nested = [label for label, option in self._labelled() if _dimensions(option)]
        doubled = sorted({label for label in nested if nested.count(label) > 1})
        if doubled:
            raise ValueError(f"options have names of their own, but {doubled} occur twice")
        return self

    def sample(self, rng: np.random.Generator) -> Value:
        options = self._options()
        return _drawn(options[int(rng.integers(len(options)))], rng)

    def contains(self, value: Value) -> bool:
        return self.option_of(value) is not None

    def perturb(self, value: Value, rng: np.random.Generator) -> Value:
        """Move to the option before or after, in the order given; an end may stay where it is.

        An option with dimensions inside is kept, and these are perturbed: a state trained under
        one optimiser is of no use to another.
        """
        options, here = self._options(), self.option_of(value)
        if here is None:
            return self.sample(rng)
        if _dimensions(options[here]):
            return _mapped(options[here], lambda dim, _, at: dim.perturb(at, rng), at=plain(value))
        there = here + (1 if rng.random() < 0.5 else -1)
        return _drawn(options[min(max(there, 0), len(options) - 1)], rng)

    def grid(self) -> tuple[Value, ...] | None:
        grids = [_grid(option) for option in self._options()]
        if any(grid is None for grid in grids) or sum(map(len, grids)) > MOST_IN_GRID:  # type: ignore[arg-type]
            return None
        return tuple(value for grid in grids for value in grid or ())

    def examples(self, rng: np.random.Generator) -> tuple[Value, ...]:
        """One value of each option."""
        return tuple(_drawn(option, rng) for option in self._options())

    def distribution(self) -> "BaseDistribution":
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution([label for label, _ in self._labelled()])

    def encoded(self, value: Value) -> Any:
        return self.label(value)

    def shown(self, value: Value) -> Any:
        label = self.label(value)
        return label if is_number(label) else str(label)

    def suggest(self, name: str, ask: Ask) -> Value:
        label = ask(name, self.distribution())
        option = next(option for known, option in self._labelled() if _same(known, label))
        return _mapped(option, lambda dim, inner, _: dim.suggest(inner, ask), f"{name}[{label}]")

    def leaves(self, name: str, value: Value) -> Iterator[Leaf]:
        value = plain(value)
        yield Leaf(name, self, value)
        here = self.option_of(value)
        if here is not None:
            label, option = self._labelled()[here]
            found: list[Leaf] = []
            inner = f"{name}[{label}]"
            _mapped(option, lambda dim, path, at: found.extend(dim.leaves(path, at)), inner, value)
            yield from found

    def parts(self) -> Iterator[Dimension]:
        yield self
        for option in self._options():
            for dimension in _dimensions(option):
                yield from dimension.parts()

    def option_of(self, value: Value) -> int | None:
        """Number of the first option that a value can be of; None if it is of none.

        A part of a config may have more fields than the option names: those of its defaults.
        """
        value = plain(value)
        fitting = (i for i, option in enumerate(self._options()) if _fits(option, value))
        return next(fitting, None)

    def label(self, value: Value) -> Any:
        """What Optuna and figures call the option of a value."""
        here = self.option_of(value)
        return None if here is None else self._labelled()[here][0]

    def _options(self) -> tuple[Any, ...]:
        return tuple(self.options.values() if isinstance(self.options, dict) else self.options)

    def _labelled(self) -> list[tuple[Any, Any]]:
        if isinstance(self.options, dict):
            return list(self.options.items())
        return [(_label(option), option) for option in self.options]


def plain(value: Any) -> Any:
    """A value as a config's JSON has it, but for lists, which are tuples; dimensions stay.

    Raises:
        ValueError: It is nothing that a config can hold.
    """
    if isinstance(value, Config) and not isinstance(value, Dimension):
        value = value.model_dump()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        if set(value) == {_VARY}:
            return Dimension.made_from(value[_VARY])
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"a value that travels as JSON is finite, but got {value}")
    if value is None or isinstance(value, Dimension | bool | int | float | str):
        return value
    if callable(value):
        return import_path.of(value)
    raise ValueError(
        "a value is what a config can hold (a number, text, None, a tuple, a mapping, a config, "
        f"or a function by its name), but got {value!r:.100}"
    )


def _written(tree: Any) -> Any:
    """A tree as JSON has it."""
    return _mapped(tree, lambda dim, *_: {_VARY: dim.model_dump(mode="json")})


def _label(option: Any) -> Any:
    """The name of an option that was given none: itself if it is simple, its JSON if not."""
    if option is None or isinstance(option, bool | int | float | str):
        return option
    return json.dumps(_written(option), sort_keys=True)


def _same(a: Any, b: Any) -> bool:
    """Whether two values are equal, where True is not 1."""
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def _mapped(
    tree: Any, change: Callable[[Dimension, str, Any], Any], name: str = "", at: Any = None
) -> Any:
    """A tree with something else in the place of each dimension.

    Args:
        tree: nested mappings and tuples.
        change: gives it, from the dimension, its path, and what `at` has there.
        name: what paths begin with.
        at: a value of the tree's form, if any.
    """
    if isinstance(tree, Dimension):
        return change(tree, name, at)
    if isinstance(tree, Mapping):
        return {
            key: _mapped(one, change, f"{name}.{key}", None if at is None else at[key])
            for key, one in tree.items()
        }
    if isinstance(tree, tuple):
        return tuple(
            _mapped(one, change, f"{name}.{number}", None if at is None else at[number])
            for number, one in enumerate(tree)
        )
    return tree


def _dimensions(tree: Any) -> list[Dimension]:
    """The dimensions that stand in a tree, in order."""
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


def _grid(tree: Any) -> tuple[Value, ...] | None:
    grids = [dim.grid() for dim in _dimensions(tree)]
    known = [grid for grid in grids if grid is not None]
    if len(known) < len(grids) or math.prod(map(len, known)) > MOST_IN_GRID:
        return None
    combinations = map(iter, itertools.product(*known))
    return tuple(_mapped(tree, lambda *_, left=one: next(left)) for one in combinations)
