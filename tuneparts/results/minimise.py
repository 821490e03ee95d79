"""Search for the arguments of a function in one call: `minimize(loss, space, by=algorithms)`."""

import re
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Literal

from pydantic import ValidationError

from tuneparts.core import import_path
from tuneparts.core.config import parse, sentence
from tuneparts.core.errors import ConfigError
from tuneparts.methods.objective import Objective, Trial, takes
from tuneparts.results.results import Results
from tuneparts.results.running import run
from tuneparts.search.algorithms.base import Algorithm
from tuneparts.search.space import Choice, Dimension, Int, Uniform
from tuneparts.search.spec import Search

here = SimpleNamespace()
"""Functions that only this process has: those of a notebook, and those inside of others."""


def minimize(
    function: Callable[..., Any],
    space: Mapping[str, Dimension] | None = None,
    *,
    by: Algorithm | Sequence[Algorithm] | Mapping[str, Algorithm],
    seeds: int | Sequence[int] = 3,
    steps: int = 1,
    direction: Literal["min", "max"] = "min",
    reports: Mapping[str, str] | None = None,
    constraint: Callable[[Objective], Any] | None = None,
    name: str | None = None,
    ray: str | None = None,
    workers: int | None = None,
    **options: Any,
) -> Results:
    """Search for the arguments at which a function is smallest.

    Args:
        function: Takes a dict with a value for each name of the space and the `seed`, and returns
            a number; or another objective, see `tuneparts.methods.objective`. One of an Optuna
            `trial` needs no space: it is called twice before, to see what it suggests.
        space: Name -> distribution.
        by: Algorithms; each is an arm of that name, such as `random` and `tpe`.
        seeds: Under which each algorithm runs; 3 for 0, 1 and 2.
        steps: Most reports of a trial, where the function yields or reports several.
        direction: `max` for the arguments at which it is largest.
        reports: Metric -> `min`, `max` or `none`, where the function returns a dict; the first one
            selects. A number is `val/loss`, or `val/score` if it is maximised.
        constraint: Gets the values by name, `lambda at: at["x"] <= at["y"]`; returns True where
            they are allowed, or a number that is at most 0 there.
        name: Of the search; that of the function when None.
        ray: As of `run`.
        workers: As of `run`, but with neither all runs in this process. A function from a notebook
            or inside of another one can run nowhere else.
        options: More of those of `run`.

    Raises:
        ConfigError: An argument is wrong, or what a trial suggests depends on other values.
    """
    if direction not in ("min", "max"):
        raise ConfigError(f"direction = {direction!r}: must be 'min' or 'max'.")
    arms = _named(by)
    space = space or _asked(function)
    for key, one in space.items():
        if not isinstance(one, Dimension):
            words = "must be a distribution, such as `tp.Uniform(-5, 5)`"
            raise ConfigError(f"space[{key!r}] = {one!r:.100}: {words}.")
    paths = [None if one is None else _path(one) for one in (function, constraint)]
    workers = 1 if ray is None and workers is None else workers
    local = [path for path in paths if path and path.startswith(f"{__name__}:")]
    if local and (ray, workers) != (None, 1):
        raise ConfigError(
            f"ray = {ray!r}, workers = {workers!r}: no worker can import `{local[0]}`. Define it "
            "with `def` at the top level of a `.py` file, or leave this out."
        )
    reports = reports or {"val/loss" if direction == "min" else "val/score": direction}
    objective = parse(Objective, {"function": paths[0], "steps": steps, "reports": reports})
    space = {f"params.{key}": one for key, one in space.items()}
    fields = {"config": objective, "space": space, "constraint": paths[1]}
    word = getattr(function, "__name__", type(function).__name__).strip("<>")
    metric = objective.reports[0].name
    search = {
        "name": name or re.sub("^(?![a-z])", "search_", re.sub(r"\W", "_", word.lower())),
        "question": f"Where is `{word}` {'smallest' if direction == 'min' else 'largest'}?",
        "seeds": seeds,
        "arms": {arm: {**fields, "algorithm": one} for arm, one in arms.items()},
        "figures": (f"accuracy:{metric}", f"best_of_n:{metric}"),
    }
    return run(parse(Search, search), ray=ray, workers=workers, **options)


def _named(by: Any) -> dict[str, Algorithm]:
    several = [by] if isinstance(by, Algorithm) else by
    kinds = [str(getattr(one, "kind", one)).rpartition(":")[2].lower() for one in several]
    arms = dict(several if isinstance(several, Mapping) else zip(kinds, several, strict=True))
    if len(arms) < max(1, len(several)) or not all(isinstance(a, Algorithm) for a in arms.values()):
        raise ConfigError(
            f"by = {by!r:.200}: must be algorithms, such as `tp.RandomSearch(20)`; several of one "
            "kind have names, `{'few': tp.Tpe(10), 'many': tp.Tpe(50)}`."
        )
    return arms


def _path(function: Callable[..., Any]) -> str:
    """The import path of a function, or the name under which it is kept in this process."""
    try:
        return import_path.of(function)
    except ConfigError:
        word = getattr(function, "__name__", "function").strip("<>")
        name = f"{word}_{len(vars(here))}"
        vars(here)[name] = function
        return f"{__name__}:here.{name}"


class _Asking(Trial):
    """Notes what a function asks for; gives values near the low ends, or the `high` ones."""

    def __init__(self, *, high: bool) -> None:
        super().__init__({"seed": 0})
        self.space: dict[str, Dimension] = {}
        self._high = high

    def _suggested(self, name: str, kind: str, *ends: Any, **options: Any) -> Any:
        try:
            found = {"float": Uniform, "int": Int, "categorical": Choice}[kind](*ends, **options)
        except ValidationError as error:
            raise ConfigError(f"trial.suggest_{kind}({name!r}): {sentence(error)}.") from None
        if self.space.setdefault(name, found) != found:
            raise ConfigError(f"trial.suggest_{kind}({name!r}): has two ranges in one trial.")
        values = list(ends[0] if kind == "categorical" else ends)
        if kind == "float":  # not at the ends, where the function may be undefined
            values = [found.decoded(ends[0] + at * (ends[1] - ends[0])) for at in (0.25, 0.75)]
        self.params[name] = values[-1 if self._high else 0]
        return self.params[name]


def _asked(function: Callable[..., Any]) -> dict[str, Dimension]:
    """The space of a function of a trial, which must be the same whatever the values are."""
    if not takes(function, "trial"):
        raise ConfigError(
            "space = None: what shall be varied? Write `{'x': tp.Uniform(-5, 5)}`, or give the "
            "function one argument `trial`, as with Optuna."
        )
    low, high = trials = _Asking(high=False), _Asking(high=True)
    for trial in trials:
        try:
            made = function(trial)
            next(made if hasattr(made, "__next__") else iter(()), None)
        except Exception as error:
            raise ConfigError(
                f"`{function.__name__}`: raised {type(error).__name__}: {error} at {trial.params}, "
                "when it was called to see what it suggests. Give a space."
            ) from error
    changed = [n for n in {**low.space, **high.space} if low.space.get(n) != high.space.get(n)]
    if changed or not low.space:
        words = f"{changed} differ with other values" if changed else "it suggests nothing"
        raise ConfigError(
            f"`{function.__name__}`: {words}, but all trials draw from one space. Give a space, "
            "with a nested Choice where some values exist for some options only, and a function "
            "of the dict."
        )
    return low.space
