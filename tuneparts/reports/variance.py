"""How much of an arm's spread comes from the data, from initialisation and from the search.

One source at a time varies while the others are held at one seed, as Bouthillier et al. (2021) do:
arms that differ in nothing but `varies` are read side by side. What a source makes of the spread is
then conditional on where the others are held, and need not add up to the spread of all together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tuneparts import schema
from tuneparts.errors import DataMissingError
from tuneparts.reports.metadata import ArmMetadata, ReportMetadata
from tuneparts.reports.rendering import NOTHING, Table
from tuneparts.reports.select import column
from tuneparts.reports.statistics import Interval
from tuneparts.reports.tables import number

FEWEST = 3
"""Replicates below which no spread is given."""
_WORDS = {"data": "data", "init": "initialisation", "search": "search"}


@dataclass(frozen=True)
class Spread:
    """The spread of one arm over its replicates."""

    arm: str
    of: str
    """The arm whose spread is split."""
    varies: tuple[str, ...]
    deviation: float
    """Standard deviation over replicates."""
    interval: Interval
    """Of the deviation, 95 %, for scores that are normal."""
    share: float
    """Its variance as a part of that of the arm which varies everything; NaN without one."""
    num: int


def spreads(selected: pd.DataFrame, metadata: ReportMetadata, metric: str) -> list[Spread]:
    """The spread of each arm that has a twin which varies less.

    Args:
        selected: the selected trial of each (arm, seed).
        metadata: of the search.
        metric: whose spread it is.

    Raises:
        DataMissingError: No arm has such twins, or they have too few replicates.
    """
    groups: dict[str, list[ArmMetadata]] = {}
    for arm in metadata.arms:
        groups.setdefault(arm.likeness or arm.name, []).append(arm)
    found = [
        one
        for arms in groups.values()
        if len({arm.varies for arm in arms}) > 1
        for one in _split(arms, selected, metric)
    ]
    if not found:
        raise DataMissingError(
            "spread is split by arms that differ in nothing but what their replicates vary, with "
            f"at least {FEWEST} replicates each, but `{metadata.name}` has none. Add them: "
            "`*by_source(arm)` of tuneparts.search.crossing gives an arm one twin per source."
        )
    return found


def _split(arms: Sequence[ArmMetadata], selected: pd.DataFrame, metric: str) -> list[Spread]:
    from scipy import stats

    scores = {arm.name: _scores(selected, arm.name, metric) for arm in arms}
    known = [arm for arm in arms if len(scores[arm.name]) >= FEWEST]
    whole = next((arm for arm in known if set(arm.varies) == set(_WORDS)), None)
    total = math.nan if whole is None else float(np.var(scores[whole.name], ddof=1))
    rows = []
    for arm in known:
        values = scores[arm.name]
        variance, freedom = float(np.var(values, ddof=1)), len(values) - 1
        low, high = (
            math.sqrt(variance * freedom / float(stats.chi2.ppf(p, freedom)))
            for p in (0.975, 0.025)
        )
        rows.append(
            Spread(
                arm.name,
                arms[0].name if whole is None else whole.name,
                arm.varies,
                math.sqrt(variance),
                Interval(low, high, 0.95),
                variance / total if total > 0 else math.nan,
                len(values),
            )
        )
    return rows


def table(found: Sequence[Spread], metadata: ReportMetadata, metric: str) -> Table:
    """The spreads for people, one row each."""
    decimals = schema.lookup(metric).decimals
    rows = [
        [
            one.of,
            " and ".join(_WORDS[source] for source in one.varies)
            if len(one.varies) < len(_WORDS)
            else "all together",
            number(one.deviation, decimals),
            f"{one.interval.low:.{decimals}f} to {one.interval.high:.{decimals}f}",
            NOTHING if math.isnan(one.share) else f"{one.share:.0%}",
            str(one.num),
        ]
        for one in found
    ]
    headers = ["arm", "what varies", "deviation", "95 % interval", "variance", "replicates"]
    notes = (
        f"Standard deviation of {metric} over replicates. One source varies at a time, the others "
        "are held at the search's first seed (Bouthillier et al. 2021); shares of the variance of "
        "all together need not add up to 100 %. Intervals are for normal scores.",
    )
    heading = f"{metadata.name}: spread by source"
    return Table.of_rows(headers, rows, heading=heading, numbers=headers[2:], notes=notes)


def _scores(selected: pd.DataFrame, arm: str, metric: str) -> list[float]:
    return [float(v) for v in column(selected[selected["arm"] == arm], metric).dropna()]
