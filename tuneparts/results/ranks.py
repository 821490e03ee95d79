"""Several runs as one benchmark: each arm's score over all tasks, with its uncertainty.

Scores of a task that has two references are put on one scale: 0 is the worse one, 1 the better one,
such as no augmentation and the true one; where no task has both, they are taken as they are. They
are summarised by the interquartile mean (Agarwal et al. 2021). The probability of improvement over
one arm needs no scale and is over all tasks, compared within seeds. Intervals are a
hierarchical bootstrap: tasks are drawn with replacement, then seeds within each, the same ones
for all arms; the means of the references are taken as known.

Legend: T tasks, S seeds, A arms, R resamples.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from tuneparts.core import schema, seeding
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.results.rendering import Table, _Bold
from tuneparts.results.run_data import RunData
from tuneparts.results.select import _by_seed
from tuneparts.results.statistics import FEWEST, Floats, _Interval, bounds
from tuneparts.results.tables import _spread, label, number

Estimate: TypeAlias = tuple[float, _Interval]
Runs: TypeAlias = Sequence[tuple[str, RunData]]
"""Name of the task, and what its run left."""
_RESAMPLES = 2000


@dataclass(frozen=True, eq=False)
class _Benchmark:
    """Scores of the arms that all tasks share."""

    metric: str
    arms: tuple[str, ...]
    scores: Mapping[str, Floats]
    """Of each task (S, A), as measured; only seeds that all arms have."""
    larger_is_better: bool
    references: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Mean scores of the worse and the better reference, of the tasks that have both: two that the
    search declares, or arms called `none` and `oracle`."""
    against: str | None = None
    """The arm over which others improve or not."""

    @property
    def scaled(self) -> dict[str, Floats]:
        """Of each task that has references (S, A) between them; where none has, all scores."""
        ends = self.references.items()
        between = {task: (self.scores[task] - low) / (high - low) for task, (low, high) in ends}
        return between or dict(self.scores)

    @property
    def ranks(self) -> Floats:
        """(T, A) ranks of the means over seeds, 1 the best; equal ones share their mean."""
        means_TA = pd.DataFrame([scores.mean(axis=0) for scores in self.scores.values()])
        return means_TA.rank(axis=1, ascending=not self.larger_is_better).to_numpy()

    def interquartile_means(self) -> dict[str, Estimate]:
        parts = list(self.scaled.values())
        return self._estimates(parts, lambda parts: _interquartile_mean(np.concatenate(parts)))

    def improvements(self) -> dict[str, Estimate]:
        """How probably each arm is better than `against` on a seed of a task, with intervals."""
        if self.against is None:
            return {}
        base, sign = self.arms.index(self.against), 1 if self.larger_is_better else -1
        wins_SA = [(np.sign(sign * (s - s[:, [base]])) + 1) / 2 for s in self.scores.values()]
        found = self._estimates(wins_SA, lambda parts: np.mean([p.mean(0) for p in parts], axis=0))
        return {arm: one for arm, one in found.items() if arm != self.against}

    def _estimates(
        self, parts: Sequence[Floats], summary: Callable[[Sequence[Floats]], Floats]
    ) -> dict[str, Estimate]:
        rng = seeding.numpy_generator(0, "reports", "benchmark")

        def resampled() -> list[Floats]:
            drawn = [parts[task] for task in rng.integers(len(parts), size=len(parts))]
            return [scores[rng.integers(len(scores), size=len(scores))] for scores in drawn]

        draws_RA = np.array([summary(resampled()) for _ in range(_RESAMPLES)])
        ends_2A = np.quantile(draws_RA, [0.025, 0.975], axis=0)
        found = zip(self.arms, summary(parts).tolist(), *ends_2A.tolist(), strict=True)
        return {arm: (point, _Interval(low, high, 0.95)) for arm, point, low, high in found}


def _interquartile_mean(scores_NA: Floats) -> Floats:
    """Mean of the middle half of each column; the outer scores count by the part that is inside."""
    ordered = np.sort(scores_NA, axis=0)
    num = len(ordered)
    edges = np.arange(num + 1) / num
    weights = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0, None)
    return np.asarray(weights @ ordered / weights.sum())


def collect(runs: Runs, metric: str, *, against: str | None = None) -> _Benchmark:
    """Bring runs together: the arms that all have, on one scale where references allow it."""
    if not runs:
        raise ConfigError("runs: none are given. Name at least one.")
    cards = [data.metadata for _, data in runs]
    by_task = {
        task: {arm.name: _by_seed(data.selected, arm.name, metric) for arm in data.metadata.arms}
        for task, data in runs
    }
    names = [arm.name for arm in cards[0].arms]
    shared = [name for name in names if all(own.get(name) for own in by_task.values())]
    outside = {name for card in cards for name in card.references}
    outside |= {arm.name for card in cards for arm in card.arms if arm.is_tuning}
    competing = [name for name in shared if name not in outside]
    arms = competing if len(competing) > 1 else shared
    if len(arms) < 2:
        raise ConfigError(
            f"{list(by_task)} share scores of {shared}: a benchmark compares at least two arms. "
            "Name runs of searches with the same arms."
        )
    if against is None:  # that of all searches
        declared = {name for card in cards for name in card.compare[1:] or ("",)}
        against = next((arm for arm in arms if declared == {arm}), None)
    elif against not in arms:
        raise UnknownNameError("arm that all tasks share", against, arms)
    is_up = schema.lookup(metric).direction is schema.Direction.UP
    found, references = {}, {}
    for (task, scores), card in zip(by_task.items(), cards, strict=True):
        seeds = sorted(set.intersection(*(set(scores[arm]) for arm in arms)))
        if not seeds:
            raise ConfigError(f"arms of {task} share no seed. Resume or extend it.")
        found[task] = np.array([[scores[arm][seed] for arm in arms] for seed in seeds])
        pair = card.references if len(card.references) == 2 else ("none", "oracle")
        if all(scores.get(name) for name in pair):
            low, high = (float(np.mean(list(scores[name].values()))) for name in pair)
            if low < high if is_up else high < low:  # else there is no scale between them
                references[task] = low, high
    return _Benchmark(metric, tuple(arms), found, is_up, references, against)


def rows(runs: Runs, found: _Benchmark) -> list[dict[str, Any]]:
    """The arms of runs that `collect` brought together in numbers, the best first."""
    ranks_TA, middle, improved = found.ranks, found.interquartile_means(), found.improvements()
    says = min(map(len, found.scores.values())) >= FEWEST
    made = []
    for position, arm in enumerate(found.arms):
        mean, span = middle[arm]
        row: dict[str, Any] = {"arm": arm, "interquartile_mean": mean}
        row |= bounds(span if says else None)
        if found.against is not None:
            row["p_better"], around = improved.get(arm, (None, None))
            row |= bounds(around if says else None, "p_better_")
        row["mean_rank"] = float(ranks_TA[:, position].mean())
        for (task, data), ranks_A in zip(runs, ranks_TA, strict=True):
            own = data.summary.set_index("arm").loc[arm]
            row |= {task: own[found.metric], f"{task}:se": own[f"{found.metric}:se"]}
            row[f"{task}:rank"] = float(ranks_A[position])
        made.append(row)
    is_up = bool(found.references) or found.larger_is_better  # between references more is better
    return sorted(made, key=lambda row: row["interquartile_mean"] * (-1 if is_up else 1))


def table(runs: Runs, found: _Benchmark) -> Table:
    """The `rows` for people: interquartile mean, improvement, ranks, and each task's score."""
    decimals = schema.lookup(found.metric).decimals
    winners = {task: data.verdict(found.metric).winner for task, data in runs}

    def shown(row: Mapping[str, Any], name: str, prefix: str, digits: int) -> str:
        mean, low, high = row[name], row[f"{prefix}low"], row[f"{prefix}high"]
        span = "" if low is None else f" ({number(low, digits)} to {number(high, digits)})"
        return "-" if mean is None else f"{number(mean, digits)}{span}"

    headers = ["arm", "interquartile mean"]
    headers += [] if found.against is None else [f"better than {found.against}"]
    headers += ["mean rank", *winners]
    cells = []
    for row in rows(runs, found):
        own: list[Any] = [row["arm"], shown(row, "interquartile_mean", "", 3)]
        if found.against is not None:
            own.append(shown(row, "p_better", "p_better_", 2))
        own.append(number(row["mean_rank"], 2))
        for task, winner in winners.items():
            text = f"{_spread(row[task], row[f'{task}:se'], decimals)} ({row[f'{task}:rank']:g})"
            own.append(_Bold(text) if row["arm"] == winner else text)
        cells.append(own)
    return Table.of_rows(
        headers, cells, heading=f"Benchmark by {label(found.metric)}", numbers=headers[1:],
        notes=_notes(runs, found),
    )  # fmt: skip


def _notes(runs: Runs, found: _Benchmark) -> tuple[str, ...]:
    num_scaled = f"{len(found.scaled)} of {len(found.scores)}"
    scale = (
        "Interquartile means are of scores with 0 and 1 at the references of each task, over the "
        f"tasks that have both ({num_scaled}), whose means are taken as known"
        if found.references
        else "Interquartile means are of scores as they are, because no task has two references "
        "(`none` and `oracle`) of which the second is better, so tasks of larger scores weigh more"
    )
    notes = [
        f"{scale}; 95 % intervals from a bootstrap over tasks, then over seeds. With few "
        "tasks they say how much these differ, not what further ones would show.",
        f"{label(found.metric)} on each task: mean ± standard error over seeds, and in brackets "
        "the rank; bold where an arm is ahead of all others on a task.",
    ]
    if found.against is not None:
        notes.append(
            f"better than {found.against}: probability of improvement, the share of seeds in which "
            "the arm is ahead on the same data, over all tasks alike, with its interval."
        )
    names = {arm.name for _, data in runs for arm in data.metadata.arms}
    if left_out := sorted(names - set(found.arms)):
        what = "References, tuning, and arms without a score on every task are left out"
        notes.append(f"{what}: {', '.join(left_out)}.")
    words = {"drawn": "draw their data anew", "fixed": "share one fixed draw of the data"}
    if kinds := sorted({data.metadata.data_draws for _, data in runs} & set(words)):
        notes.append(f"Seeds {' or, by task, '.join(words[kind] for kind in kinds)}.")
    if (fewest := min(map(len, found.scores.values()))) < FEWEST:
        notes.append(f"A task has {fewest} seeds, too few for an interval.")
    digests = ", ".join(f"{task} {data.metadata.digest}" for task, data in runs)
    return (*notes, f"digests: {digests}")
