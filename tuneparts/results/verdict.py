"""Which arm is the best by a metric, and whether the data can tell it from the others.

Which arm is the best is known only after seeing the scores, so all comparisons with it hold at
95 % jointly: each interval has level 1 - 0.05 / (arms - 1). That covers the choice of the best
(Hsu 1984, multiple comparisons with the best; Bonferroni's bound in place of Dunnett's quantile).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pandas as pd

from tuneparts.core import schema
from tuneparts.results.compare import FEWEST, MISTAKES, bounded
from tuneparts.results.metadata import ReportMetadata
from tuneparts.results.select import by_seed
from tuneparts.results.statistics import Difference, difference, estimate


@dataclass(frozen=True)
class Verdict:
    """The arms by one metric: their order, and how far the first is ahead of each other one."""

    metric: str
    ranked: tuple[str, ...]
    """Arms that have the metric, best mean first; equal ones in the order of the search."""
    gaps: Mapping[str, Difference]
    """Difference of the first arm to each other arm, with its interval."""

    @property
    def alike(self) -> tuple[str, ...]:
        """Arms that cannot be told from the first: the interval of the difference has zero."""
        return tuple(arm for arm, gap in self.gaps.items() if gap.interval and 0.0 in gap.interval)

    @property
    def winner(self) -> str | None:
        """The first arm if it is ahead of every other one; None where the data leaves it open."""
        is_open = any(gap.interval is None for gap in self.gaps.values())
        return None if not self.gaps or is_open or self.alike else self.ranked[0]


def judge(selected: pd.DataFrame, metadata: ReportMetadata, metric: str) -> Verdict:
    """Compare the arms by a metric over the trials selected by validation.

    Args:
        selected: The selected trial of each (arm, seed), as `select.select` gives it.
        metadata: Of the search.
        metric: A schema name with a direction, such as `test/accuracy`.
    """
    scores = {arm.name: by_seed(selected, arm.name, metric) for arm in metadata.arms}
    sign = -1 if schema.lookup(metric).direction is schema.Direction.UP else 1
    means = {arm: estimate(list(own.values())).mean for arm, own in scores.items() if own}
    names = list(means)
    ranked = sorted(names, key=lambda name: sign * means[name])
    # Scores on different examples are no comparison, so no arm wins.
    is_one_task = len({arm.judged_on for arm in metadata.arms if arm.name in names}) <= 1
    others = ranked[1:] if is_one_task else []
    gaps = {
        name: difference(scores[ranked[0]], scores[name], 1 - MISTAKES / len(others))
        for name in others
    }
    told = {
        name: replace(gap, interval=bounded(gap.interval, metric) if gap.num >= FEWEST else None)
        for name, gap in gaps.items()
    }
    return Verdict(metric, tuple(ranked), told)
