"""How many trials of a searching arm one run of another arm is worth, with an interval.

Within a replicate, the expected score of the best of n of its N trials is estimated without
replacement (Tang et al. 2020), which is unbiased for every n up to N. Bootstrap intervals over
trials fail near N (Dodge et al. 2021; Tang et al. 2020). So nothing is bootstrapped: replicates are
independent, trials included, and for each n the difference of that estimate to the other arm's
score has a Student interval over replicates. Those n at which neither side is rejected are the
interval: reaching the score at the true number n is rejected from below, or at n - 1 from above, in
at most 2.5 % of cases each, whatever the other n say.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tuneparts.core import schema
from tuneparts.results.compare import FEWEST
from tuneparts.results.metadata import ReportMetadata
from tuneparts.results.select import by_seed, column
from tuneparts.results.statistics import Floats, best_of_weights, by_rank


@dataclass(frozen=True)
class Worth:
    """How many trials match one run; None stands for more than were run."""

    trials: int | None
    low: int | None
    """At least so many at 95 %; None: more than were run."""
    high: int | None
    most: int
    """Trials that each replicate ran."""
    num: int
    """Replicates; below three there is no interval, and `low` and `high` are 1 and None."""

    @property
    def says(self) -> str:
        """The number in words."""
        if self.trials == 1:
            return "at most 1"
        return f"more than {self.most}" if self.trials is None else str(self.trials)

    @property
    def interval(self) -> str:
        """The interval in words; empty where there is none."""
        if self.num < FEWEST:
            return ""
        more = f"more than {self.most}"
        span = f": {more}" if self.low is None else f" {self.low} to {self.high or more}"
        return f"95 % interval{span}"


def worth(
    searched: Mapping[int, tuple[npt.ArrayLike, npt.ArrayLike]],
    scores: Mapping[int, float],
    *,
    selects_larger: bool = True,
    larger_is_better: bool = True,
) -> Worth | None:
    """Estimate how many trials of a searching arm match another; None without a common replicate.

    `searched` has validation and test scores of the searching arm's finished trials by replicate,
    `scores` the score of the other arm. `selects_larger` is of validation scores.
    """
    seeds = sorted(set(searched) & set(scores))
    if not seeds:
        return None
    gaps = [curve(*searched[seed], selects_larger=selects_larger) - scores[seed] for seed in seeds]
    most = min(map(len, gaps))
    gaps_SN = np.array([gap[:most] for gap in gaps]) * (1 if larger_is_better else -1)
    mean_N = gaps_SN.mean(axis=0)
    point = _first(mean_N >= 0)
    if len(seeds) < FEWEST:
        return Worth(point, 1, None, most, len(seeds))
    from scipy import stats

    half_N = stats.sem(gaps_SN, axis=0) * float(stats.t.ppf(0.975, len(seeds) - 1))
    above = most + 1 - int((~(mean_N - half_N < 0))[::-1].cumprod().sum())  # and all from there on
    high = above if above <= most else None
    return Worth(point, _first(mean_N + half_N >= 0), high, most, len(seeds))


def _first(reached_N: npt.NDArray[np.bool_]) -> int | None:
    return int(reached_N.argmax()) + 1 if reached_N.any() else None


def curve(val: npt.ArrayLike, test: npt.ArrayLike, *, selects_larger: bool = True) -> Floats:
    """Expected test score of the best of n by validation, over all subsets of the trials; (N,)."""
    ranked = by_rank(val, test, larger_is_better=selects_larger)
    return np.asarray(best_of_weights(len(ranked)) @ ranked)


def of_arms(
    trials: pd.DataFrame,
    selected: pd.DataFrame,
    metadata: ReportMetadata,
    *,
    arm: str,
    against: str,
    metric: str,
) -> Worth | None:
    """How many trials of one arm match another one; None where trials depend on each other."""
    searching = metadata.arm(against)
    if searching.is_adaptive or searching.trials_per_seed == 1:
        return None
    rule = schema.selection_metric(metadata.metric)
    finished = trials[(trials["arm"] == against) & (trials["outcome"] == "finished")]
    known = finished.assign(val=column(finished, rule.name), test=column(finished, metric))
    known = known.dropna(subset=["val", "test"]).sort_values("index")
    return worth(
        {int(str(s)): (own["val"], own["test"]) for s, own in known.groupby("seed")},
        by_seed(selected, arm, metric),
        selects_larger=rule.direction is schema.Direction.UP,
        larger_is_better=schema.lookup(metric).direction is schema.Direction.UP,
    )
