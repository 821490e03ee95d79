"""Which arm is good on every task: ranks of the arms that several runs share.

Ranks make tasks of different difficulty count alike. Whether they differ at all is asked with
Friedman's test, as Demsar (2006) recommends for comparing methods over data sets.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tuneparts import schema
from tuneparts.errors import ConfigError
from tuneparts.reports.rendering import Cell, Column, Table
from tuneparts.reports.run_data import RunData
from tuneparts.reports.tables import label, number, spread


@dataclass(frozen=True, eq=False)
class Ranks:
    """Ranks (T, A) of A arms on T tasks, 1 the best; equal scores share the mean of their ranks."""

    tasks: tuple[str, ...]
    arms: tuple[str, ...]
    ranks_TA: npt.NDArray[np.float64]

    @property
    def means(self) -> npt.NDArray[np.float64]:
        """(A,) Each arm's rank averaged over tasks."""
        return np.asarray(self.ranks_TA.mean(axis=0))

    @property
    def friedman(self) -> float:
        """p-value of all arms being alike; NaN below two tasks or three arms."""
        num_tasks, num_arms = self.ranks_TA.shape
        if num_tasks < 2 or num_arms < 3 or np.ptp(self.ranks_TA) == 0:
            return math.nan
        from scipy import stats  # takes more than a second to import

        return float(stats.friedmanchisquare(*self.ranks_TA.T).pvalue)


def ranks(scores: Mapping[str, Mapping[str, float]], *, larger_is_better: bool) -> Ranks:
    """Rank the arms that have a score on every task.

    Args:
        scores: task -> arm -> mean score; the first task gives the order of the arms.
        larger_is_better: direction of the score.
    """
    if not scores:
        raise ConfigError("ranks are taken over at least one task, but got none. Name a run.")
    arms = [
        arm
        for arm in next(iter(scores.values()))
        if all(not math.isnan(of_task.get(arm, math.nan)) for of_task in scores.values())
    ]
    if len(arms) < 2:
        raise ConfigError(
            f"ranks compare at least two arms that every run has scores of, but {list(scores)} "
            f"share {arms}. Name runs of searches with the same arms."
        )
    values_TA = np.array([[of_task[arm] for arm in arms] for of_task in scores.values()])
    signed_TA = -values_TA if larger_is_better else values_TA
    from scipy import stats

    return Ranks(tuple(scores), tuple(arms), stats.rankdata(signed_TA, axis=1))


def table(runs: Sequence[tuple[str, RunData]], metric: str) -> Table:
    """Build the table of arms by mean rank, with rank and score on each task.

    Args:
        runs: name of the task, and what its run left.
        metric: what is ranked, of the trial selected by validation.
    """
    summaries = {task: run_data.summary.set_index("arm") for task, run_data in runs}
    scores = {task: _means(summary, metric) for task, summary in summaries.items()}
    quantity = schema.lookup(metric)
    found = ranks(scores, larger_is_better=quantity.direction is schema.Direction.UP)
    order = np.argsort(found.means, kind="stable")
    columns = [
        Column("arm", tuple(Cell(found.arms[i]) for i in order), is_number=False),
        Column("mean rank", tuple(Cell(number(found.means[i], 2)) for i in order)),
    ]
    winners = {task: run_data.verdict(metric).winner for task, run_data in runs}
    for position, task in enumerate(found.tasks):
        cells = []
        for i in order:
            row = summaries[task].loc[found.arms[i]]
            score = spread(row[metric], row[f"{metric}:se"], quantity.decimals)
            text = f"{score} ({found.ranks_TA[position, i]:g})"
            cells.append(Cell(text, is_bold=found.arms[i] == winners[task]))
        columns.append(Column(task, tuple(cells)))
    left_out = sorted({arm for of_task in scores.values() for arm in of_task} - set(found.arms))
    notes = [
        f"{label(metric)}, mean ± standard error over seeds, and in brackets the rank; bold where "
        "an arm is ahead of all others on a task."
    ]
    if not math.isnan(found.friedman):
        notes.append(
            f"Friedman's test of all arms being alike over {len(found.tasks)} tasks: "
            f"p = {found.friedman:.2g}."
        )
    if left_out:
        notes.append(f"Without a score on every task, so left out: {', '.join(left_out)}.")
    digests = ", ".join(f"{task} {run_data.metadata.digest}" for task, run_data in runs)
    notes.append(f"digests: {digests}")
    return Table(f"Ranks by {label(metric)}", tuple(columns), tuple(notes))


def _means(summary: pd.DataFrame, metric: str) -> dict[str, float]:
    if metric not in summary:
        return {}
    return {str(arm): float(value) for arm, value in summary[metric].items()}
