"""The table of a benchmark: arms over several runs, by their score over all tasks."""

import math
from collections.abc import Iterator, Sequence

from tuneparts import schema
from tuneparts.reports.benchmark import FEWEST_ARMS, FEWEST_TASKS, Benchmark
from tuneparts.reports.compare import FEWEST
from tuneparts.reports.rendering import Cell, Column, Table
from tuneparts.reports.run_data import RunData
from tuneparts.reports.statistics import Interval
from tuneparts.reports.tables import label, number, spread


def table(runs: Sequence[tuple[str, RunData]], found: Benchmark) -> Table:
    """Build the table: interquartile mean, improvement, mean rank, and each task's score and rank.

    Args:
        runs: name of the task, and what its run left.
        found: the same, brought together by `benchmark.collect`.
    """
    metric, quantity = found.metric, schema.lookup(found.metric)
    middle = found.interquartile_means()
    sign = -1 if found.prefers_larger else 1
    order = sorted(range(len(found.arms)), key=lambda i: sign * middle[found.arms[i]][0])
    arms = [found.arms[i] for i in order]
    says = found.fewest_replicates >= FEWEST
    means = [_mean(*middle[arm], digits=3, says=says) for arm in arms]
    ranks_TA = found.ranks
    mean_ranks = ranks_TA.mean(axis=0)
    columns = [
        Column("arm", tuple(map(Cell, arms)), is_number=False),
        Column("interquartile mean", tuple(map(Cell, means))),
        *_improvements(found, arms, says=says),
        Column("mean rank", tuple(Cell(number(mean_ranks[i], 2)) for i in order)),
    ]
    for position, (task, data) in enumerate(runs):
        summary, winner = data.summary.set_index("arm"), data.verdict(metric).winner
        cells = []
        for i in order:
            row = summary.loc[found.arms[i]].to_dict()
            score = spread(row[metric], row[f"{metric}:se"], quantity.decimals)
            text = f"{score} ({ranks_TA[position, i]:g})"
            cells.append(Cell(text, is_bold=found.arms[i] == winner))
        columns.append(Column(task, tuple(cells)))
    return Table(f"Benchmark by {label(metric)}", tuple(columns), _notes(runs, found))


def _improvements(found: Benchmark, arms: Sequence[str], *, says: bool) -> Iterator[Column]:
    if improved := found.improvements():
        cells = [
            _mean(*improved[arm], digits=2, says=says) if arm in improved else "-" for arm in arms
        ]
        yield Column(f"better than {found.against}", tuple(map(Cell, cells)))


def _mean(mean: float, span: Interval, *, digits: int, says: bool) -> str:
    bounds = f" ({number(span.low, digits)} to {number(span.high, digits)})" if says else ""
    return f"{number(mean, digits)}{bounds}"


def _notes(runs: Sequence[tuple[str, RunData]], found: Benchmark) -> tuple[str, ...]:
    num_scaled = f"{len(found.scaled_tasks)} of {len(found.tasks)}"
    scale = (
        "Interquartile means are of scores with 0 and 1 at the references of each task, over the "
        f"tasks that have both ({num_scaled}), whose means are taken as known"
        if found.is_normalised
        else "Interquartile means are of scores as they are, because no task has two references "
        "(`none` and `oracle`) of which the second is better, so tasks of larger scores weigh more"
    )
    notes = [
        f"{scale}; 95 % intervals from a bootstrap over tasks, then over replicates. With few "
        "tasks they say how much these differ, not what further ones would show.",
        f"{label(found.metric)} on each task: mean ± standard error over seeds, and in brackets "
        "the rank; bold where an arm is ahead of all others on a task.",
    ]
    if found.against is not None:
        notes.append(
            f"better than {found.against}: probability of improvement, the share of replicates in "
            "which the arm is ahead on the same data, over all tasks alike, with its interval."
        )
    if math.isnan(found.friedman):
        notes.append(
            f"No test of ranks: that needs at least {FEWEST_TASKS} tasks and {FEWEST_ARMS} arms, "
            f"and here are {len(found.tasks)} and {len(found.arms)}."
        )
    else:
        notes.append(
            f"Friedman's test of all arms being alike: p = {found.friedman:.2g}; mean ranks that "
            f"lie {found.critical_difference:.2f} apart differ at 5 % (Nemenyi)."
        )
    names = {arm.name for _, data in runs for arm in data.metadata.arms}
    left_out = sorted(names - set(found.arms))
    if left_out:
        notes.append(
            "References, tuning, and arms without a score on every task are left out: "
            f"{', '.join(left_out)}."
        )
    kinds = {data.metadata.data_draws for _, data in runs if data.metadata.data_draws}
    if kinds:
        words = {"drawn": "draw their data anew", "fixed": "share one fixed draw of the data"}
        notes.append(
            "Replicates " + " or, by task, ".join(words[kind] for kind in sorted(kinds)) + "."
        )
    if found.fewest_replicates < FEWEST:
        notes.append(f"A task has {found.fewest_replicates} replicates, which say nothing.")
    digests = ", ".join(f"{task} {data.metadata.digest}" for task, data in runs)
    return (*notes, f"digests: {digests}")
