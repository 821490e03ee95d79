"""Tabulated learning curves: recorded trials that an algorithm can be tried on in no time.

The file is a table with a row per trial: a column for each value that differs between trials, under
its path in the config, and a column `METRIC@PASSES` for each score. The idea is that of the
black-box tables of Syne Tune (Salinas et al. 2022) and YAHPO (Pfisterer et al. 2022).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tuneparts import frames
from tuneparts.errors import DataError


@dataclass(frozen=True)
class Curves:
    """Trials and what each scored on its way."""

    configs: pd.DataFrame
    """A row per trial, a column per value that differs between them."""
    passes: tuple[int, ...]
    scores: NDArray[np.float64]
    """Trial x passes."""
    metric: str

    def at(self, trial: int, passes: int) -> float:
        """The score of a trial after so many passes."""
        return float(self.scores[trial, self.passes.index(passes)])


def record(journal: Path, metric: str, *, arm: str | None = None) -> pd.DataFrame:
    """Tabulate the trials of a run that reached their whole budget.

    Args:
        journal: the file `journal.jsonl` of the run.
        metric: whose curves.
        arm: of this arm only; of all when not given.

    Raises:
        DataError: No trial that finished reports the metric.
    """
    trials = frames.trials(journal)
    whole = trials[trials["outcome"] == "finished"]
    whole = whole if arm is None else whole[whole["arm"] == arm]
    params = [name for name in map(str, whole) if name.startswith("param.")]
    varied = [name for name in params if whole[name].astype(str).nunique() > 1]
    steps = frames.steps(journal, [metric])
    steps = steps[steps["trial"].isin(whole["trial"])]
    if steps.empty:
        raise DataError(
            f"a table of curves has trials that finished, but none in {journal} has `{metric}`. "
            "Name a metric that its trials report."
        )
    curves = steps.pivot_table(index="trial", columns="step", values="value")
    curves.columns = pd.Index([f"{metric}@{passes}" for passes in curves.columns])
    named = whole.set_index("trial")[varied].rename(columns=lambda n: str(n).removeprefix("param."))
    return named.join(curves, how="inner").reset_index(drop=True)


def read(path: Path | Any) -> Curves:
    """Read a table that `record` made and somebody wrote as CSV.

    Raises:
        DataError: It has no column of scores, or scores of several metrics.
    """
    table = pd.read_csv(path)
    columns = [name for name in map(str, table) if "@" in name]
    metrics = {name.rpartition("@")[0] for name in columns}
    if len(metrics) != 1:
        raise DataError(
            f"a table of curves has columns `METRIC@PASSES` of one metric, but {path} has "
            f"{', '.join(sorted(metrics)) or 'none'}."
        )
    return Curves(
        configs=table.drop(columns=columns),
        passes=tuple(int(name.rpartition("@")[2]) for name in columns),
        scores=table[columns].to_numpy(float),
        metric=metrics.pop(),
    )
