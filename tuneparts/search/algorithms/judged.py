"""Trials that are judged on their way: whoever does not pass at a level is stopped.

Successive halving without barriers and the pruners of Optuna differ only in how they judge.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tuneparts.core.schema import Metric
from tuneparts.search.algorithms.base import Proposals, stretch
from tuneparts.search.journal import TrialId
from tuneparts.search.segment import ANY, Batch, Segment

Judge: TypeAlias = Callable[[Sequence[float], int], bool]
"""Whether a trial passes a level, given its rewards (scores where larger is better) at this level
and those before, and its index. It is called once a trial, and remembers those that it judged."""


def judged(
    trials: Sequence[Segment],
    levels: Sequence[int],
    judges: Sequence[Judge],
    metric: Metric,
    *,
    is_free: bool,
) -> Proposals:
    """Run trials from level to level, as far as they pass.

    At each level trials are judged in their order, each as soon as those before it have been, and
    there is no barrier. With free timing they are judged in the order in which they arrive. A trial
    without a finite score does not pass, and judges do not see it.

    Args:
        trials: from start to end.
        levels: passes, rising; the last one is the budget.
        judges: one for each level but the last.
        metric: whose scores are judged.
        is_free: whether timing is free.
    """
    sign = 1.0 if metric.better(1.0, 0.0) else -1.0
    whole = {one.trial: one for one in trials}
    waiting: list[dict[TrialId, None]] = [{} for _ in judges]
    """At each level the trials that are to be judged, in order."""
    rewards: dict[TrialId, list[float]] = {trial: [] for trial in whole}
    run: list[Segment] = []
    stop: list[TrialId] = []

    def send_to(trial: TrialId, level: int) -> None:
        bounds = (levels[level - 1] if level else 0), levels[level]
        run.append(stretch(whole[trial], number=level, bounds=bounds))
        if level < len(judges):
            waiting[level][trial] = None

    for trial in whole:
        send_to(trial, 0)
    while any(waiting):
        heads = tuple(next(iter(line)) for line in waiting if line)
        results = yield Batch(tuple(run), tuple(stop), ANY if is_free else heads)
        run, stop = [], []
        for trial, result in results.items():
            level = len(rewards[trial])
            if level == len(judges):
                continue  # it has spent its budget
            del waiting[level][trial]
            if result.failure is not None:
                continue
            rewards[trial].append(sign * result.score(metric))
            if math.isfinite(rewards[trial][-1]) and judges[level](rewards[trial], trial.index):
                send_to(trial, level + 1)
            else:
                stop.append(trial)
    if run or stop:
        yield Batch(tuple(run), tuple(stop))
