"""Recorded curves as a method: any algorithm can be searched with, resumed and reported on them.

A trial looks up the recorded config that is nearest to its own, and reports that one's scores. The
idea is that of the simulators of Syne Tune (Salinas et al. 2022); `curves` has the file.

Example:
    >>> import pandas as pd
    >>> from tuneparts.search.algorithms import RandomSearch
    >>> table = pd.DataFrame({"lr": [0.1, 0.9], "val/nll@5": [2.0, 3.0], "val/nll@10": [1.0, 4.0]})
    >>> table.to_csv("table.csv", index=False)
    >>> search = search_on("table.csv", {"random": RandomSearch(num_trials=3)})
    >>> search.metric, search.passes, search.arm("random").trials_per_seed
    ('val/nll', 10, 3)
"""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from torch import nn

from tuneparts.errors import ConfigError
from tuneparts.frames import flat
from tuneparts.schema import Metric, lookup
from tuneparts.search import curves
from tuneparts.search.algorithms import Algorithm
from tuneparts.search.curves import Curves
from tuneparts.search.space import Choice, Dimension, Uniform
from tuneparts.search.spec import Arm, Scale, Search
from tuneparts.training.artifacts import Columns
from tuneparts.training.learner import Context, Learner, MethodConfig


class TabulatedConfig(MethodConfig):
    """Replays the recorded curve whose config is nearest."""

    needs_data: ClassVar[bool] = False
    method: Literal["tuneparts.search.tabulated:TabulatedConfig"] = (
        "tuneparts.search.tabulated:TabulatedConfig"
    )
    table: str
    """Path of the file."""
    values: dict[str, Any] = Field(default_factory=dict)
    """Where to look, by the paths of the recorded configs."""

    def declared_metrics(self) -> tuple[Metric, ...]:
        return (lookup(_read(self.table).metric),)

    def build(self, context: Context) -> Learner:  # noqa: ARG002
        return TabulatedLearner(self)


class TabulatedLearner:
    """One recorded curve under way."""

    def __init__(self, config: TabulatedConfig) -> None:
        self._curves = _read(config.table)
        self._row = nearest(self._curves, flat(config.values))
        self._steps = [passes for passes in self._curves.passes if passes <= config.passes]
        self._count = 0

    @property
    def finished(self) -> bool:
        return self._count >= len(self._steps)

    @property
    def passes(self) -> int:
        return self._steps[self._count - 1] if self._count else 0

    def advance(self) -> Mapping[str, float]:
        self._count += 1
        score = self._curves.at(self._row, self.passes)
        return {self._curves.metric: score, "cost/passes": float(self.passes)}

    def final_module(self) -> nn.Module:
        raise ConfigError("a recorded curve has no model to keep. Keep another arm's.")

    def artifacts(self) -> Mapping[str, Columns]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"count": self._count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._count = int(state["count"])


def nearest(found: Curves, values: Mapping[str, Any]) -> int:
    """The row whose config is nearest: numbers by their place in the range, words by match.

    Args:
        found: the table.
        values: path to value; paths that are not given do not count.
    """
    distance = np.zeros(len(found.configs))
    for path, value in values.items():
        column = found.configs[path]
        if _is_number(column):
            known = column.to_numpy(float)
            span = float(known.max() - known.min()) or 1.0
            distance += ((known - float(value)) / span) ** 2
        else:
            distance += (column.astype(str) != str(value)).to_numpy(float)
    return int(distance.argmin())


def search_on(
    table: str | Path, algorithms: Mapping[str, Algorithm], *, seeds: Sequence[int] = (0,)
) -> Search:
    """A search over a table: an arm for each algorithm, all over the recorded ranges."""
    found, path = curves.read(Path(table)), str(Path(table).absolute())
    interval, *_, passes = (*found.passes, found.passes[-1])
    nested: dict[str, Any] = {}
    for name in map(str, found.configs):
        *parents, leaf = name.split(".")
        node = nested
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = found.configs[name].tolist()[0]
    config = TabulatedConfig(table=path, values=nested, passes=passes, interval=interval)
    space = {f"values.{name}": _dimension(found, name) for name in map(str, found.configs)}
    arms = [
        Arm(name=name, config=config, algorithm=one, space=space if one.has_space else {})
        for name, one in algorithms.items()
    ]
    return Search(
        name="tabulated",
        question=f"Which algorithm finds the best trial of {Path(table).name}?",
        scale=Scale.SMOKE,
        metric=found.metric,
        passes=passes,
        seeds=tuple(seeds),
        arms=tuple(arms),
    )


def _dimension(found: Curves, name: str) -> Dimension:
    column = found.configs[name]
    if not _is_number(column):
        return Choice(options=tuple(dict.fromkeys(column.astype(str))))
    low, high = float(column.min()), float(column.max())
    is_log = low > 0 and high / low > 100  # two decades are not linear
    return Uniform(low=low, high=high, log=is_log)


def _is_number(column: Any) -> bool:
    return column.dtype.kind in "iuf"


@functools.lru_cache(maxsize=8)
def _read(path: str) -> Curves:
    return curves.read(Path(path))
