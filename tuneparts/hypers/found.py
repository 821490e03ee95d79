"""Values found by one run, put into the hypers of another.

A run reports values by metric name (`rotation`, `theta_min.rotation`, `keep.3`); a config holds
them by hyper. Every name must find its place: a value that was dropped in silence would let a
retrained net differ from what was found.
"""

from collections.abc import Mapping, Sequence

from tuneparts.core.errors import UnknownNameError
from tuneparts.hypers.hyper import Hyper
from tuneparts.hypers.not_learnable import refuse_outside_likelihood


def placed(
    parts: Mapping[str, Hyper],
    found: Mapping[str, float],
    makes: Mapping[str, Sequence[type[Hyper]]],
) -> dict[str, Hyper]:
    """The hypers that values found elsewhere belong to, at these values.

    Args:
        parts: The hypers that are there, by name.
        found: Values by metric name without `hyper/`.
        makes: Classes of which a hyper of a name can be made where there is none, with every value
            that was not found at no effect.
    """
    changed = {}
    rest = dict(found)
    for name in {**parts, **makes}:
        given = parts.get(name)
        classes = makes.get(name, [type(hyper) for hyper in [given] if hyper is not None])
        values = {m: rest.pop(m) for m in found if any(cls.owns(m, name) for cls in classes)}
        if values:
            changed[name] = (given or _made(classes, name, values)).at(values, name=name)
    refuse_outside_likelihood(rest)
    for metric in rest:
        known = [
            one for name, classes in makes.items() for cls in classes for one in cls.known(name)
        ]
        known += [one for name, hyper in parts.items() for one in hyper.known(name)]
        raise UnknownNameError("hyper", metric, set(known))
    return changed


def _made(classes: Sequence[type[Hyper]], name: str, found: Mapping[str, float]) -> Hyper:
    """A hyper of the first class that owns all the values; of the one that misses fewest else."""
    best = min(classes, key=lambda cls: sum(not cls.owns(metric, name) for metric in found))
    return best.identity()
