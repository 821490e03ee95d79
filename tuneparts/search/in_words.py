"""What a search is, in words: its arms, their spaces, its data and nets; reports show it."""

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tuneparts.core import schema
from tuneparts.search.frames import flat

if TYPE_CHECKING:
    from tuneparts.search.arm import Arm
    from tuneparts.search.space.dimension import Dimension
    from tuneparts.search.spec import Search

_MOST_DIFFERENCES = 4
"""Fields that are named where two arms of one method differ; the rest are counted."""
_GENERAL = ("passes", "interval")


def arm(search: "Search", name: str) -> str:
    """What an arm is: its method, its algorithm, and how it differs from its like.

    Two arms are alike that have one method, one algorithm, and follow the same arm or none.
    """
    own = search.arm(name)
    parts = [_sentence(own.config) or f"The method `{own.config.model_dump()['method']}`."]
    if own.follows is not None:
        parts.append(f"Trained at the hypers that `{own.follows}` found.")
    if own.trials_per_seed > 1:
        parts.append(_algorithm(own))
    kinds = {
        one.name: (type(one.config), type(one.algorithm), one.follows is None)
        for one in search.arms
    }
    like = next(one for one in search.arms if kinds[one.name] == kinds[name])
    if like.name != name:
        parts.append(_difference(own, like))
    return " ".join(filter(None, parts))


def _difference(own: "Arm", like: "Arm") -> str:
    if own.follows is not None and own.follows != like.follows:
        return ""  # what it follows says it
    fields, others = (flat(one.config.model_dump(mode="json")) for one in (own, like))
    found: list[str] = []
    parts: dict[str, list[str]] = {}
    for path, value in fields.items():
        if path in own.space or others.get(path) == value or path in _GENERAL:
            continue
        words = path.split(".")
        above = (".".join(words[:end]) for end in range(1, len(words)))
        whole = next((part for part in above if part in others), None)
        if whole is None:
            found.append(f"`{path}` {_value(value)}")
        elif value:  # a part that the other arm does not have
            parts.setdefault(whole, []).append(f"{path[len(whole) + 1 :]} {_value(value)}")
    for whole, values in parts.items():
        found.append(f"`{whole}` ({', '.join(values[:_MOST_DIFFERENCES])})")
    if not found:
        return ""
    more = len(found) - _MOST_DIFFERENCES
    rest = f" and {more} more" if more > 0 else ""
    return f"As `{like.name}`, but with {', '.join(found[:_MOST_DIFFERENCES])}{rest}."


def _algorithm(own: "Arm") -> str:
    """The algorithm of an arm, with its settings."""
    fields = own.algorithm.model_dump(mode="json", exclude_defaults=True)
    # What of Optuna it is is said also where it is the usual one.
    optuna = {"sampler", "pruner"} & set(type(own.algorithm).model_fields)
    fields = {name: getattr(own.algorithm, name) for name in optuna} | fields
    shown = {name: value for name, value in fields.items() if name not in ("kind", "num_trials")}
    settings = [f"{name} {_value(value)}" for name, value in shown.items()]
    sentence = _sentence(own.algorithm) or f"The algorithm `{own.algorithm.kind}`."
    return f"{sentence} ({', '.join(settings)})" if settings else sentence


def space(dimensions: Mapping[str, "Dimension"]) -> str:
    """The dimensions of a space with where their values come from; equal ones together.

    Example:
        >>> from tuneparts.search.space import Uniform
        >>> space({"hypers.affine.rotation": Uniform(low=0, high=3.2), "optimiser.lr": Uniform(
        ...     low=1e-4, high=0.1, log=True)})
        'rotation (rad): 0 to 3.2; lr: 0.0001 to 0.1, evenly in the logarithm'
    """
    names: dict[str, list[str]] = {}
    for path, dimension in dimensions.items():
        short = path.rpartition(".")[2]
        metric = schema.find(f"hyper/{short}")
        unit = f" ({metric.unit})" if metric is not None and metric.unit else ""
        names.setdefault(_range(dimension), []).append(short + unit)
    return "; ".join(f"{', '.join(paths)}: {words}" for words, paths in names.items())


def _range(dimension: "Dimension") -> str:
    fields = dimension.model_dump(mode="json", exclude_none=True)
    if {"low", "high"} <= set(fields) and "mean" not in fields:
        words = f"{_value(fields['low'])} to {_value(fields['high'])}"
        words += f" in steps of {_value(fields['step'])}" if fields.get("step", 1) != 1 else ""
        return words + (", evenly in the logarithm" if dimension.is_log else "")
    values = dimension.grid()
    if values is not None and len(values) <= 2 * _MOST_DIFFERENCES:
        return " or ".join(_value(dimension.shown(value)) for value in values)
    rest = ", ".join(f"{name} {_value(value)}" for name, value in fields.items() if name != "kind")
    return f"{fields.get('kind', type(dimension).__name__)} ({rest})"


def net(search: "Search") -> str:
    """The nets of the arms, each with the fields that differ from its defaults."""
    nets = [getattr(one.config, "net", None) for one in search.arms]
    return "; ".join(dict.fromkeys(_net(each) for each in nets if each is not None))


def _net(config: Any) -> str:
    fields = config.model_dump(mode="json", exclude_defaults=True, exclude={"name"})
    own = ", ".join(f"{name} {_value(value)}" for name, value in fields.items())
    name = str(getattr(config, "name", type(config).__name__))
    return f"{name} ({own})" if own else name


def data(search: "Search", record: Mapping[str, Any] | None) -> str:
    """The data set, its variant, and how many examples each part has, by its `data_record`."""
    if search.data is None:
        return ""
    skipped = ("name", "seed", "root", "num_train", "num_val", "num_test", "target")
    varied = search.data.model_dump(mode="json", exclude_defaults=True)
    variant = [
        name if value is True else f"{name} {_value(value)}"
        for name, value in varied.items()
        if name not in skipped
    ]
    words = ", ".join([search.data.name, *variant])
    if record is None:
        return words
    counts = ", ".join(
        f"{record[f'num_{part}']:,} {what}"
        for part, what in (("train", "training"), ("val", "validation"), ("test", "test"))
    )
    shape: Sequence[int] = record["in_shape"]
    return f"{words}; {counts} examples of {' x '.join(map(str, shape))} numbers"


def _sentence(thing: Any) -> str:
    """The first paragraph of the docstring of an object's class, where it has one of its own."""
    own = type(thing).__dict__.get("__doc__")
    return "" if own is None else inspect.cleandoc(own).partition("\n\n")[0].replace("\n", " ")


def _value(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
