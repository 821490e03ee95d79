"""The question of a search answered in one computed sentence, with its uncertainty.

The sentence calls an arm ahead of another only where the interval of their difference leaves out
zero; the comparisons are those of `verdict`.
"""

import math
from collections.abc import Collection, Sequence

import pandas as pd

from tuneparts.core import schema
from tuneparts.results.compare import nothing_said
from tuneparts.results.statistics import Difference
from tuneparts.results.tables import label, number, spread
from tuneparts.results.verdict import Verdict

_MOST_NAMED = 3
"""Arms that are named where many cannot be told apart; the table has all of them."""


def answer(verdict: Verdict, summary: pd.DataFrame, *, told: Collection[str] = ()) -> str:
    """Say which arm is best, how far ahead of the next one, at what cost, and what failed.

    Args:
        verdict: The arms compared by the metric that the answer is about.
        summary: One row per arm, as `select.summarise` gives it.
        told: Two arms whose difference has been told already; it is not said twice.
    """
    by_arm = summary.set_index("arm")
    arms, metric = verdict.ranked, verdict.metric
    if not arms:
        parts = [f"No answer: no arm has a finished trial with {label(metric)}"]
    elif len(arms) == 1:
        rest = "no other arm has any" if len(summary) > 1 else "there is no other arm"
        parts = [f"{arms[0]} has {label(metric)} {_score(by_arm, arms[0], metric)}; {rest}"]
    else:
        parts = [_comparison(by_arm, verdict, told)]
    return "; ".join([*parts, *_gaps(summary)]) + "."


def _comparison(summary: pd.DataFrame, verdict: Verdict, told: Collection[str]) -> str:
    metric = verdict.metric
    first, second = verdict.ranked[:2]
    gap = verdict.gaps[second]
    best = "highest" if schema.lookup(metric).direction is schema.Direction.UP else "lowest"
    lead = f"{first} has the {best} mean {label(metric)}, {_score(summary, first, metric)}"
    cost = f"at {_bill(summary, first)} passes per seed against {_bill(summary, second)}"
    rival = f"{second}, {_score(summary, second, metric)}"
    is_told = {first, second} == set(told)
    if gap.interval is None:
        rest = "" if is_told else f"; {nothing_said(gap.num)}"
        return f"{lead}, before {rival}, {cost}{rest}"
    distance = f"{_gap(gap, metric, len(verdict.gaps))}, {cost}"
    others = [name for name in verdict.alike if name != second]
    if second in verdict.alike and not is_told:
        also = f" (nor from {_listed(others)})" if others else ""
        return f"{lead}, but cannot be told apart from {rival}{also}: {distance}"
    # An arm further behind may still be too uncertain to be told from the first.
    unknown = [name for name, other in verdict.gaps.items() if other.interval is None]
    rest = f"; it cannot be told apart from {_listed(others)}" if others else ""
    rest += f"; too few replicates of {_listed(unknown)} allow no comparison" if unknown else ""
    ahead = f"before {rival}, {cost}" if is_told else f"and is ahead of {rival}: {distance}"
    return f"{lead}, {ahead}{rest}"


def _listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(names[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def _score(summary: pd.DataFrame, arm: str, metric: str) -> str:
    row = summary.loc[arm].to_dict()
    num, expected = row[f"{metric}:n"], row["seeds_expected"]
    score = spread(row[metric], row[f"{metric}:se"], schema.lookup(metric).decimals)
    seeds = f"{num} of {expected} seeds" if num < expected else f"{num} seed{'s' * (num > 1)}"
    return f"{score} ({seeds})"


def _gap(gap: Difference, metric: str, num_comparisons: int) -> str:
    assert gap.interval is not None
    decimals = schema.lookup(metric).decimals
    low, high = (number(x, decimals) for x in (gap.interval.low, gap.interval.high))
    how = f"paired over {gap.num} seeds" if gap.is_paired else "Welch, seeds not matched"
    jointly = f" (jointly over {num_comparisons} comparisons)" if num_comparisons > 1 else ""
    span = f"95 % interval{jointly} {low} to {high}"
    return f"difference {number(gap.mean, decimals)}, {span}, {how}"


def _bill(summary: pd.DataFrame, arm: str) -> str:
    bill = float(summary["passes_with_leader"][arm])
    return "unknown" if math.isnan(bill) else number(bill, 0)


def _gaps(summary: pd.DataFrame) -> list[str]:
    """List what is missing from the comparison, so that silence never looks like success."""
    expected = int(summary["expected"].sum())
    kinds = {
        "failed": "failed",
        "missing": "missing",
        "unfinished": "not finished",
        "not_started": "not started",
        "unscored": "without a validation score",
    }
    counts = {words: int(summary[kind].sum()) for kind, words in kinds.items()}
    parts = [f"{count} {words}" for words, count in counts.items() if count]
    silent = [
        str(arm) for arm, seeds in zip(summary["arm"], summary["seeds"], strict=True) if not seeds
    ]
    gaps = [f"of {expected} trials {', '.join(parts)}"] if parts else []
    return gaps + ([f"no result from {', '.join(silent)}"] if silent else [])
