"""Values found by one run, put into the hypers of another.

A run reports values by metric name (`rotation`, `theta_min.rotation`, `keep.3`); a config holds
them by part. Every name must find its place: a value that was dropped in silence would let a
retrained net differ from what was found.
"""

import re
from collections.abc import Mapping
from typing import Any

from tuneparts.augment.affine import benton, lila, schwoebel
from tuneparts.errors import ConfigError, UnknownNameError
from tuneparts.training.hyper.not_learnable import refuse_outside_likelihood

_AFFINE: dict[str, tuple[str, ...]] = {
    "lila": lila.NAMES,
    "benton": benton.NAMES,
    "schwoebel": tuple(
        f"{end}.{name}" for end in ("theta_min", "theta_max") for name in schwoebel.NAMES
    ),
}
_COLOUR = ("brightness", "contrast")
_SINGLE = ("noise", "temperature")
_NUMBERED = {"dropout": ("dropout", "rate"), "keep": ("mask", "keep")}
_DERIVED = "num_kept"


def placed(tree: dict[str, Any], found: Mapping[str, float]) -> dict[str, Any]:
    """The fields of a hypers config with values found elsewhere.

    Args:
        tree: a dumped config.
        found: values by metric name without `hyper/`.

    Returns:
        A new tree; `tree` is not changed.
    """
    refuse_outside_likelihood(found)
    tree = dict(tree)
    rest = dict(found)
    affine = {name: rest.pop(name) for name in found if _is_affine(name)}
    if affine:
        tree["affine"] = _affine(tree["affine"], affine)
    colour = {name: rest.pop(name) for name in _COLOUR if name in rest}
    if colour:
        tree["colour"] = (tree["colour"] or dict.fromkeys(_COLOUR, 0.0)) | colour
    tree |= {name: rest.pop(name) for name in _SINGLE if name in rest}
    for stem, (part, field) in _NUMBERED.items():
        numbers = _numbered(stem, rest)
        if numbers:
            tree[part] = (tree[part] or {}) | {field: numbers}
            if stem == "keep":
                _check_count(rest.pop(_DERIVED, None), numbers)
    for name in rest:
        _refuse(name)
    return tree


def _is_affine(name: str) -> bool:
    return any(name in names for names in _AFFINE.values())


def _affine(given: dict[str, Any] | None, found: dict[str, float]) -> dict[str, Any]:
    kind = given["kind"] if given else _kind_of(found)
    for name in found:
        if name not in _AFFINE[kind]:
            raise UnknownNameError(f"hyper of the affine kind `{kind}`", name, _AFFINE[kind])
    if kind != "schwoebel":
        return (given or {"kind": kind, **dict.fromkeys(_AFFINE[kind], 0.0)}) | found
    # An empty end is the identity.
    ends = {end: dict(given[end]) if given else {} for end in ("theta_min", "theta_max")}
    for name, value in found.items():
        end, component = name.split(".")
        ends[end][component] = value
    return {"kind": kind, **ends}


def _kind_of(found: Mapping[str, float]) -> str:
    """The first kind that has all the names; the one that misses fewest otherwise."""
    return min(_AFFINE, key=lambda kind: len(set(found) - set(_AFFINE[kind])))


def _numbered(stem: str, rest: dict[str, float]) -> tuple[float, ...]:
    """Remove `stem.0`, `stem.1`, ... from `rest` and return their values in order."""
    indices = sorted(
        int(match[1]) for name in rest if (match := re.fullmatch(rf"{stem}\.(\d+)", name))
    )
    if indices != list(range(len(indices))):
        missing = min(set(range(len(indices))) - set(indices))
        raise ConfigError(
            f"values `{stem}.0`, `{stem}.1`, ... must be found without gaps, but `{stem}.{missing}`"
            f" is missing beside `{stem}.{indices[-1]}`. Pass all values of the run."
        )
    return tuple(rest.pop(f"{stem}.{index}") for index in indices)


def _check_count(num_kept: float | None, keep: tuple[float, ...]) -> None:
    counted = sum(k > 0.5 for k in keep)
    if num_kept is not None and num_kept != counted:
        raise ConfigError(
            f"`{_DERIVED}` must count the `keep.*` above one half, but is {num_kept:g} where they "
            f"give {counted}. Pass values of one report only."
        )


def _refuse(name: str) -> None:
    if name == _DERIVED:
        raise ConfigError(
            f"`{_DERIVED}` is counted from `keep.*`, but came without them. Masks of images "
            "cannot be taken over by value; pass `keep.0`, `keep.1`, ... of a vector's mask."
        )
    affine = {name for names in _AFFINE.values() for name in names}
    numbered = {f"{stem}.0" for stem in _NUMBERED}
    raise UnknownNameError("hyper", name, affine | {*_COLOUR, *_SINGLE, *numbered, _DERIVED})
