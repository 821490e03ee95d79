"""How the values of an arm's trials are drawn: points first, and only what its constraint allows.

An arm is asked for a draw by an index and a seed, and by nothing else, so that a draw does not
depend on how many trials there are or what came before.
"""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tuneparts.core import import_path
from tuneparts.core.errors import ConfigError
from tuneparts.core.seeding import numpy_generator
from tuneparts.search.space import Value, plain

if TYPE_CHECKING:  # an arm is drawn from
    from tuneparts.search.spec import Arm

TRIED = 1000
"""Draws of which one must be allowed, or the space is taken for empty."""
MOST_DRAWS = 100_000
"""Draws after which a trial gives up; with one in `TRIED` allowed that does not happen."""


def sample(arm: "Arm", rng: np.random.Generator, fixed: Mapping[str, Value] = {}) -> dict[str, Any]:
    """Draw values that the constraint allows; draws that it does not are drawn again.

    Args:
        arm: whose space it is.
        rng: what is drawn with.
        fixed: values that are given and not drawn.
    """
    for _ in range(MOST_DRAWS):
        values = {path: dim.sample(rng) for path, dim in arm.space.items()} | dict(fixed)
        if allows(arm, values):
            return values
    raise ConfigError(_empty(arm, MOST_DRAWS))


def point(arm: "Arm", index: int, rng: np.random.Generator) -> dict[str, Any]:
    """The values of a point that is tried first; what it leaves out is drawn."""
    return sample(arm, rng, arm.points[index])


def allows(arm: "Arm", values: Mapping[str, Value]) -> bool:
    """Whether the constraint of an arm allows these values; without one, always."""
    if arm.constraint is None:
        return True
    return _is_allowed(arm, arm.constraint_function, values)


def _is_allowed(arm: "Arm", constraint: Callable[..., Any], values: Mapping[str, Value]) -> bool:
    config = arm.config.replaced(arm.of_config(values))
    try:
        found = constraint(config)
    except Exception as error:
        raise ConfigError(
            f"a constraint answers for every config of the space, but `{arm.constraint}` of "
            f"`{arm.name}` raised {type(error).__name__}: {error} at {dict(values)!r:.200}. Let it "
            "return False for what it cannot judge."
        ) from error
    if isinstance(found, bool | np.bool_):
        return bool(found)
    if isinstance(found, int | float | np.number) and not math.isnan(found):
        return bool(found <= 0)
    raise ConfigError(
        "a constraint returns True where a config is allowed, or a number that is at most 0 there, "
        f"but `{arm.constraint}` of `{arm.name}` returned {found!r:.100}."
    )


def check(arm: "Arm") -> None:
    """Refuse a space that does not fit the config, points outside of it, and one that is empty.

    Raises:
        ConfigError: With what is wrong and how to mend it.
    """
    if not arm.space:
        return
    for number, given in enumerate(arm.points):
        _check_point(arm, number, given)
    rng = numpy_generator(0, "validate a space")
    base = _first_allowed(arm, rng)
    arm.config.replaced(arm.of_config(base))
    for path, dim in arm.space.items():
        for value in dim.examples(rng):
            values = {**base, path: value}
            if arm.constraint is None or allows(arm, values):
                arm.config.replaced(arm.of_config(values))
    for number, given in enumerate(arm.points):
        values = {**base, **given}
        if set(given) == set(arm.space) and not allows(arm, values):
            raise ConfigError(
                f"a point to try first is allowed by the constraint, but `{arm.constraint}` of "
                f"`{arm.name}` does not allow point {number}, {given!r:.200}. Leave the point out."
            )
        arm.config.replaced(arm.of_config(values))


def _first_allowed(arm: "Arm", rng: np.random.Generator) -> dict[str, Any]:
    for _ in range(TRIED if arm.constraint is not None else 1):
        values = {path: dim.sample(rng) for path, dim in arm.space.items()}
        if arm.constraint is None or allows(arm, values):
            return values
    raise ConfigError(_empty(arm, TRIED))


def _empty(arm: "Arm", tried: int) -> str:
    return (
        f"space and constraint have configs in common, but of {tried:,} draws of `{arm.name}` "
        f"`{arm.constraint}` allows none. Narrow the space to where it allows some, or mend the "
        "constraint; a number that it returns is at most 0 where a config is allowed."
    )


def _check_point(arm: "Arm", number: int, given: Mapping[str, Value]) -> None:
    unknown = sorted(set(given) - set(arm.space))
    if unknown:
        raise ConfigError(
            f"a point to try first has dimensions of the space, but point {number} of "
            f"`{arm.name}` has {', '.join(unknown)}. Dimensions: {', '.join(arm.space)}."
        )
    for path, value in given.items():
        if not arm.space[path].contains(value):
            words = arm.space[path].model_dump(mode="json", exclude={"kind"})
            raise ConfigError(
                f"a point to try first lies in the space, but point {number} of `{arm.name}` has "
                f"{value!r:.100} at `{path}`, which is {type(arm.space[path]).__name__} of "
                f"{words!s:.300}. Move the point, or widen the dimension."
            )


def constraint_named(path: str) -> Callable[..., Any]:
    """The function that a constraint's import path leads to."""
    found = import_path.find(path)
    if not callable(found):
        raise ConfigError(
            f"a constraint is a function of a config, but `{path}` leads to {found!r:.100}."
        )
    return found  # type: ignore[no-any-return]


def plain_points(points: Any) -> Any:
    """Points as a search's JSON has them."""
    if not isinstance(points, list | tuple):
        return points
    return tuple(
        {str(path): plain(value) for path, value in one.items()}
        if isinstance(one, Mapping)
        else one
        for one in points
    )


def at(config: Mapping[str, Any], path: str) -> Any:
    """What a config as plain values has at a dotted path; None if it has nothing there."""
    node: Any = config
    if path.startswith("data."):
        # There the paths into the search's data are kept whole.
        return config.get("data", {}).get(path.removeprefix("data."))
    for part in path.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node
