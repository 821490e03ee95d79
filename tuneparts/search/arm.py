"""An arm of a search: a method with its config, its space, its algorithm and its resources."""

import difflib
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import cached_property
from typing import Annotated, Any, TypeAlias

import numpy as np
from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator, model_validator

from tuneparts.core import import_path, seeding
from tuneparts.core.config import Config, parse
from tuneparts.core.errors import ConfigError
from tuneparts.methods import catalog
from tuneparts.search.algorithms.base import Algorithm, Fixed, _Cost
from tuneparts.search.space import Dimension, Value, _plain
from tuneparts.training.config import Method

NAME = r"^[a-z][a-z0-9_]*$"
DATA = "data."
"""Paths of a space that begin so lead into the search's data."""
DATA_KEY = "data"
"""Where the config of a trial has what its data has other than that of the search."""
_LEAVE_TEST_DATA = ("num_train", "standardise")
"""Fields of the data that leave validation and test examples as they are."""
is_read: ContextVar[bool] = ContextVar("is an arm read from a run?", default=False)
_Dimension: TypeAlias = Annotated[SerializeAsAny[Dimension], BeforeValidator(Dimension.made_from)]
_TRIED = 1000
"""Draws of which one must be allowed, or the space counts as empty."""
_MOST_DRAWS = 100_000
"""Draws after which a trial gives up; with one in `_TRIED` allowed that does not happen."""
_MOST_TASKS = 32
"""Variants of the data that an arm may have: all of them are held in memory."""


class Resources(Config):
    """What one trial reserves on a machine."""

    cpus: float = Field(default=1, gt=0)
    gpus: float = Field(default=0, ge=0)
    """One, or a fraction that lets several trials share it."""
    memory_gb: float = Field(default=0, ge=0)
    custom: dict[str, float] = Field(default_factory=dict)
    """Name of a resource that only the cluster knows -> amount."""

    @field_validator("gpus")
    @classmethod
    def _check_gpus(cls, gpus: float) -> float:
        if gpus > 1:
            raise ValueError(f"resources.gpus = {gpus:g}: a trial runs on one GPU or a part of it")
        return gpus


class Arm(Config):
    """One method, what is varied of it, and how.

    Most arms are written as a method alone, or as `Method.searched_by(...)`.
    """

    name: str = Field(default="", pattern=f"^$|{NAME}")
    """Its key among the `arms` of the search."""
    config: SerializeAsAny[Method]
    """The method's config. The space varies some of its fields; the others are as they stand."""
    algorithm: Annotated[SerializeAsAny[Algorithm], BeforeValidator(Algorithm.made_from)] = Fixed()
    """Any `Algorithm`, ours or your own."""
    space: dict[str, _Dimension] = Field(default_factory=dict)
    """Dotted path of a field of the config (`optimiser.lr`, or `lr` if no other field is called
    so), or of the search's data (`data.num_train`) -> its distribution."""
    points: tuple[dict[str, Annotated[Any, BeforeValidator(_plain)]], ...] = ()
    """What is tried first: path -> value. A point may leave out dimensions, which are drawn."""
    constraint: str | None = None
    """Your own function, or its import path. It is called with the config of a trial, and returns
    True where it is allowed, or a number that is at most 0 there."""
    data: dict[str, Any] = Field(default_factory=dict)
    """Dotted path into the search's data (`num_train`) -> what this arm has there instead."""
    seeds: tuple[int, ...] | None = None
    """None takes those of the search."""
    fresh_seed: bool = False
    """Train at what another arm found under a seed that it did not select by; the data is the
    same."""
    resources: Resources = Resources()
    max_failures: int | None = Field(default=None, ge=0)
    """As of the search, for this arm; None takes that of the search."""
    at_once: int | None = Field(default=None, gt=0)
    """Most trials of this arm that run side by side; None for as many as there is room for."""
    packed: int = Field(default=1, ge=1)
    """Trials of a seed that a worker trains together, for small nets of the method `standard`. It
    changes how fast they are trained and how numbers are rounded."""
    budget_note: str = ""
    """Why its trials spend another number of steps than the search says."""

    @field_validator("config", mode="before")
    @classmethod
    def _parse_method(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            found = catalog.config_class(str(value.get("method")))
            # A method of an installed package has a name, and its import path is one too.
            return parse(found, {**value, "method": found.model_fields["method"].default})
        return value

    @field_validator("constraint", mode="before")
    @classmethod
    def _name_constraint(cls, value: Any) -> Any:
        return import_path.of(value) if callable(value) else value

    @model_validator(mode="after")
    def _check_arm(self) -> "Arm":
        catalog.check(self.config)
        here, algorithm = f"arms['{self.name}']", self.algorithm.kind
        if isinstance(self.algorithm, Fixed) == bool(self.space):
            raise ValueError(
                f"{here}: has algorithm `{algorithm}` and {len(self.space)} dimensions, but an arm "
                "has a space exactly when its algorithm draws from one"
            )
        if self.config.hypers_from and self.config.config_from:
            raise ValueError(f"{here}: has `hypers_from` and `config_from`; leave one out")
        if self.source is not None and type(self.algorithm) is not Fixed:
            why = f"trains at what `{self.source}` found, so it cannot search itself"
            raise ValueError(f"{here}.algorithm = {algorithm}: {why}")
        if self.source is None and self.fresh_seed:
            raise ValueError(f"{here}.fresh_seed: needs `hypers_from` or `config_from`")
        if self.packed > 1 and not self.config.can_be_packed:
            raise ValueError(
                f"{here}.packed = {self.packed}: only the method `standard` is packed, not "
                f"`{self.config.model_dump()['method']}`; leave it out"
            )
        if self.packed > 1 and self.config.runtime is not None:
            raise ValueError(f"{here}.packed: has a `runtime`, which a pack has not; leave one out")
        if (self.points or self.constraint) and not self.space:
            raise ValueError(f"{here}: has `points` or a `constraint`, but no space")
        if self.points and not self.algorithm.takes_points:
            raise ValueError(f"{here}.points: `{algorithm}` draws none; leave them out")
        varied = [path.removeprefix(DATA) for path in self.space if path.startswith(DATA)]
        if self.has_variants and DATA_KEY in type(self.config).model_fields:
            raise ValueError(f"{here}.data: its config has a field `data`, so it cannot vary it")
        if doubled := sorted(set(varied) & set(self.data)):
            raise ValueError(f"{here}.data: {doubled} are in its space too; set or vary them")
        return self

    @property
    def source(self) -> str | None:
        """The arm at whose hyperparameters, or config, this one trains."""
        return self.config.hypers_from or self.config.config_from

    def completed(self, shared: Mapping[str, Any]) -> "Arm":
        """The arm with what all arms of a search share, and whole paths; checked as a whole.

        A field that the arm's own config sets is left as it is.
        """
        own, fields = self.config, type(self.config).model_fields
        unset = {n for n in fields if n not in own.model_fields_set or getattr(own, n) is None}
        new = {n: v for n, v in shared.items() if n in unset}
        resources = self.resources
        if "resources" not in self.model_fields_set:
            resources = shared.get("resources", resources)
        if not own.takes_runtime:
            new.pop("runtime", None)
        if "interval" not in own.model_fields_set | new.keys():
            new["interval"] = max(1, new.get("steps", own.steps) // 10)
        config = own.replaced(new)
        paths = {path: self._whole(path, config) for path in self.space}
        made = type(self)(
            **{
                **dict(self),
                "config": config,
                "resources": resources,
                "space": {paths[path]: dim for path, dim in self.space.items()},
                "points": tuple(
                    {paths.get(path, path): value for path, value in point.items()}
                    for point in self.points
                ),
            }
        )
        # A draw that does not fit the config is refused now, and not in a worker an hour later.
        # One that is read from a run was tried when the run began: reading calls nothing.
        if not is_read.get():
            made._check_draws()
            made.algorithm.check(made)
        return made

    def _whole(self, path: str, config: Method) -> str:
        """The dotted path of a field that is named by its end."""
        tree = config.model_dump()
        if path.startswith(DATA) or path.partition(".")[0] in tree:
            return path
        paths = list(paths_of(tree))
        found = [one for one in paths if one.endswith(f".{path}")]
        if len(found) == 1:
            return found[0]
        if not found and isinstance(tree.get("params"), dict):
            return f"params.{path}"
        where = f"arms['{self.name}'].space['{path}']"
        if found:
            raise ConfigError(f"{where}: could be {' or '.join(found)}. Write the one you mean.")
        ends = {one.rpartition(".")[2]: one for one in paths}
        near = difflib.get_close_matches(path.rpartition(".")[2], ends, n=1)
        hint = f" Did you mean `{ends[near[0]]}`?" if near else ""
        raise ConfigError(f"{where}: no such field of {type(config).__name__}.{hint}")

    def _check_draws(self) -> None:
        here = f"arms['{self.name}']"
        for number, given in enumerate(self.points):
            for path, value in given.items():
                point, dim = f"{here}.points[{number}]['{path}']", self.space.get(path)
                if dim is None:
                    known = ", ".join(self.space)
                    raise ConfigError(f"{point}: no such dimension. Use one of: {known}.")
                if not dim.contains(value):
                    words = dim.model_dump(mode="json", exclude={"kind"})
                    raise ConfigError(
                        f"{point} = {value!r:.100}: outside of {type(dim).__name__} {words!s:.300}."
                    )
        rng = seeding.numpy_generator(0, "validate a space")
        base = self.sample(rng, most=_TRIED)
        tried = [base, *({**base, **given} for given in self.points)]
        for path, dim in self.space.items():
            tried += filter(self.allows, ({**base, path: one} for one in dim.examples(rng)))
        for number, given in enumerate(self.points):
            if set(given) == set(self.space) and not self.allows(given):
                raise ConfigError(
                    f"{here}.points[{number}] = {given!r:.200}: `{self.constraint}` does not allow "
                    "it. Leave the point out."
                )
        for values in tried:
            self.config_at(values)

    @property
    def trials_per_seed(self) -> int:
        return self.cost.trials

    @property
    def cost(self) -> _Cost:
        return self.algorithm.cost(self)

    @property
    def judged_on(self) -> str:
        """What validation and test data of this arm have other than those of the search."""
        changes = {path: v for path, v in self.data.items() if path not in _LEAVE_TEST_DATA}
        return ", ".join(f"{path}={value}" for path, value in sorted(changes.items()))

    @cached_property
    def _constraint(self) -> Callable[..., Any]:
        assert self.constraint is not None
        found = import_path.find(self.constraint)
        if not callable(found):
            raise ConfigError(f"`{self.constraint}` is {found!r:.100}, not a function of a config.")
        return found  # type: ignore[no-any-return]

    def sample(
        self, rng: np.random.Generator, fixed: Mapping[str, Value] = {}, most: int | None = None
    ) -> dict[str, Value]:
        """Draw values that the constraint allows, next to some that are given."""
        most = most or _MOST_DRAWS
        for _ in range(most):
            values = {path: dim.sample(rng) for path, dim in self.space.items()} | dict(fixed)
            if self.allows(values):
                return values
        raise ConfigError(
            f"arms['{self.name}'].constraint = {self.constraint}: allows none of {most:,} draws "
            "from the space. Narrow the space; a number that it returns is at most 0 where it "
            "allows."
        )

    def allows(self, values: Mapping[str, Value]) -> bool:
        if self.constraint is None:
            return True
        config, constraint = self.config_at(values), self._constraint
        try:
            found = constraint(config)
        except Exception as error:
            raise ConfigError(
                f"arms['{self.name}'].constraint = {self.constraint}: raised "
                f"{type(error).__name__}: {error} at {dict(values)!r:.200}. Let it return False "
                "for what it cannot judge."
            ) from error
        if isinstance(found, bool | np.bool_):
            return bool(found)
        if isinstance(found, int | float | np.number) and not math.isnan(found):
            return bool(found <= 0)
        raise ConfigError(
            f"arms['{self.name}'].constraint = {self.constraint}: returned {found!r:.100}. Return "
            "True where a config is allowed, or a number that is at most 0 there."
        )

    def config_at(self, values: Mapping[str, Value]) -> Method:
        """The config of a trial at these values; those of the data are left out."""
        own = {path: value for path, value in values.items() if not path.startswith(DATA)}
        return self.config.replaced(own)

    def of_data(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """What the data of a trial has other than that of the search: path -> value."""
        varied = {p.removeprefix(DATA): v for p, v in values.items() if p.startswith(DATA)}
        return {**self.data, **varied}

    @property
    def has_variants(self) -> bool:
        return bool(self.data) or any(path.startswith(DATA) for path in self.space)

    def data_variants(self) -> Iterator[dict[str, Value]]:
        """All changes to the search's data that trials of this arm can have."""
        targets = [p for p in (*self.space, *self.data) if p.removeprefix(DATA) == "target"]
        if targets:
            raise ValueError(f"arms['{self.name}']: has another target, but all arms predict one")
        grids = {p: dim.grid() for p, dim in self.space.items() if p.startswith(DATA)}
        loose = [path for path, grid in grids.items() if not grid]
        number = math.prod(len(grid or ()) for grid in grids.values())
        if loose or number > _MOST_TASKS:
            raise ValueError(
                f"arms['{self.name}'].space: varies {', '.join(loose or grids)} over "
                f"{'a range' if loose else number}, but all variants of the data are loaded, at "
                f"most {_MOST_TASKS}. Take a Choice of few values"
            )
        for values in itertools.product(*(grid or () for grid in grids.values())):
            yield self.of_data(dict(zip(grids, values, strict=True)))


def paths_of(tree: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Dotted paths of all fields of a config."""
    for name, value in tree.items():
        yield f"{above}{name}"
        if isinstance(value, Mapping):
            yield from paths_of(value, f"{above}{name}.")


def method_config(config: Mapping[str, Any]) -> Method:
    """The config of a trial's method, from plain values that may also say something of the data."""
    cls = catalog.config_class(config["method"])
    if DATA_KEY not in cls.model_fields:
        config = {name: value for name, value in config.items() if name != DATA_KEY}
    return parse(cls, config)


def variant_name(changes: Mapping[str, Value]) -> str:
    """What a variant of the data is called: its changes, in one order."""
    return json.dumps(changes, sort_keys=True)


def at(config: Mapping[str, Any], path: str) -> Any:
    """What a trial's config has at a dotted path; None if it has nothing there."""
    if path.startswith(DATA):  # the paths into the search's data are kept whole
        return config.get(DATA_KEY, {}).get(path.removeprefix(DATA))
    node: Any = config
    for part in path.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node
