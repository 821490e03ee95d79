"""How the values of an arm's trials are drawn: points first, and only what its constraint allows.

An arm is asked for a draw by an index and a seed, and by nothing else, so that a draw does not
depend on how many trials there are or what came before.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tuneparts.core.errors import ConfigError
from tuneparts.core.seeding import numpy_generator
from tuneparts.search.space import Value

if TYPE_CHECKING:  # an arm is drawn from
    from tuneparts.search.arm import Arm

TRIED = 1000
"""Draws of which one must be allowed, or the space is taken for empty."""
MOST_DRAWS = 100_000
"""Draws after which a trial gives up; with one in `TRIED` allowed that does not happen."""


def sample(
    arm: "Arm", rng: np.random.Generator, fixed: Mapping[str, Value] = {}, most: int | None = None
) -> dict[str, Any]:
    """Draw values that the constraint allows, beside some that are given; others are redrawn."""
    most = most or MOST_DRAWS
    for _ in range(most):
        values = {path: dim.sample(rng) for path, dim in arm.space.items()} | dict(fixed)
        if allows(arm, values):
            return values
    raise ConfigError(
        f"`{arm.constraint}` of `{arm.name}`: it allows none of {most:,} draws from the space. "
        "Narrow the space to where it allows some, or mend the constraint; a number that it "
        "returns is at most 0 where a config is allowed."
    )


def allows(arm: "Arm", values: Mapping[str, Value]) -> bool:
    """Whether the constraint of an arm allows these values; without one, always."""
    if arm.constraint is None:
        return True
    config, constraint = arm.config_at(values), arm.constraint_function
    try:
        found = constraint(config)
    except Exception as error:
        raise ConfigError(
            f"`{arm.constraint}` of `{arm.name}` raised {type(error).__name__}: {error} at "
            f"{dict(values)!r:.200}. Let it return False for what it cannot judge."
        ) from error
    if isinstance(found, bool | np.bool_):
        return bool(found)
    if isinstance(found, int | float | np.number) and not math.isnan(found):
        return bool(found <= 0)
    raise ConfigError(
        f"`{arm.constraint}` of `{arm.name}` returned {found!r:.100}: it must be True where a "
        "config is allowed, or a number that is at most 0 there."
    )


def check(arm: "Arm") -> None:
    """Refuse a space that does not fit the config, points outside of it, and one that is empty."""
    if not arm.space:
        return
    for number, given in enumerate(arm.points):
        for path, value in given.items():
            if path not in arm.space:
                raise ConfigError(
                    f"point {number} of `{arm.name}` has {path}, which is no dimension of its "
                    f"space. Dimensions: {', '.join(arm.space)}."
                )
            if not arm.space[path].contains(value):
                words = arm.space[path].model_dump(mode="json", exclude={"kind"})
                raise ConfigError(
                    f"point {number} of `{arm.name}` has {value!r:.100} at `{path}`, outside of "
                    f"{type(arm.space[path]).__name__} {words!s:.300}."
                )
    rng = numpy_generator(0, "validate a space")
    base = sample(arm, rng, most=TRIED)
    tried = [base]
    for path, dim in arm.space.items():
        examples = ({**base, path: value} for value in dim.examples(rng))
        tried += [values for values in examples if allows(arm, values)]
    for number, given in enumerate(arm.points):
        tried.append({**base, **given})
        if set(given) == set(arm.space) and not allows(arm, given):
            raise ConfigError(
                f"point {number} of `{arm.name}`, {given!r:.200}: `{arm.constraint}` does not "
                "allow it. Leave the point out."
            )
    for values in tried:
        arm.config_at(values)


def at(config: Mapping[str, Any], path: str) -> Any:
    """What a trial's config has at a dotted path; None if it has nothing there."""
    if path.startswith("data."):  # the paths into the search's data are kept whole
        return config.get("data", {}).get(path.removeprefix("data."))
    node: Any = config
    for part in path.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node
