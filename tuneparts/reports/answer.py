"""The search's question answered in one computed sentence, with its uncertainty.

The sentence claims a winner only where the interval of the difference to the next arm leaves out
zero. Which arm is the best is known only after seeing the scores, so all comparisons with it hold
at 95 % jointly: each interval has level 1 - 0.05 / (arms - 1). That covers the choice of the best
(Hsu 1984, multiple comparisons with the best; Bonferroni's bound in place of Dunnett's quantile).
"""

import math

import pandas as pd

from tuneparts import schema
from tuneparts.reports.run_data import RunData
from tuneparts.reports.select import column
from tuneparts.reports.statistics import Difference, difference
from tuneparts.reports.tables import label, number, spread

_MISTAKES = 0.05
"""How often any of the sentence's comparisons may be wrong."""


def answer(run_data: RunData, metric: str = "test/accuracy") -> str:
    """Best arm, how far ahead of the next one, at what cost, and what failed."""
    scores = {
        str(arm): {int(s): float(v) for s, v in zip(own["seed"], column(own, metric), strict=True)}
        for arm, own in run_data.selected[column(run_data.selected, metric).notna()].groupby("arm")
    }
    summary = run_data.summary.set_index("arm")
    arms = ranked(run_data, metric)
    if not arms:
        parts = [f"No answer: no arm has a finished trial with {label(metric)}"]
    elif len(arms) == 1:
        rest = "no other arm has any" if len(summary) > 1 else "there is no other arm"
        parts = [f"{arms[0]} has {label(metric)} {_score(summary, arms[0], metric)}; {rest}"]
    else:
        parts = [_comparison(summary, scores, arms, metric)]
    return "; ".join([*parts, *_gaps(run_data.summary)]) + "."


def ranked(run_data: RunData, metric: str = "test/accuracy") -> list[str]:
    """The arms that have the metric, best mean first; equal ones keep the metadata's order."""
    means = column(run_data.summary.set_index("arm"), metric).dropna()
    sign = -1 if schema.lookup(metric).direction is schema.Direction.UP else 1
    names = [arm.name for arm in run_data.metadata.arms if arm.name in means.index]
    return sorted(names, key=lambda name: sign * float(means[name]))


def _comparison(
    summary: pd.DataFrame, scores: dict[str, dict[int, float]], ranked: list[str], metric: str
) -> str:
    first, second = ranked[:2]
    level = 1 - _MISTAKES / len(ranked[1:])
    gaps = {name: difference(scores[first], scores[name], level) for name in ranked[1:]}
    gap = gaps[second]
    best = "highest" if schema.lookup(metric).direction is schema.Direction.UP else "lowest"
    lead = f"{first} has the {best} mean {label(metric)}, {_score(summary, first, metric)}"
    cost = f"at {_bill(summary, first)} passes per seed against {_bill(summary, second)}"
    rival = f"{second}, {_score(summary, second, metric)}"
    if gap.interval is None:
        return f"{lead}, before {rival}, {cost}; one seed: no uncertainty, so no claim"
    if 0.0 not in gap.interval:
        return f"{lead}, and is ahead of {rival}: {_gap(gap, metric, len(gaps))}, {cost}"
    alike = [name for name, other in gaps.items() if other.interval and 0.0 in other.interval]
    others = [name for name in alike if name != second]
    also = f" (nor from {', '.join(others)})" if others else ""
    apart = f"but cannot be told apart from {rival}{also}"
    return f"{lead}, {apart}: {_gap(gap, metric, len(gaps))}, {cost}"


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
    """What is not in the comparison, so that silence never looks like success."""
    expected = int(summary["expected"].sum())
    kinds = {
        "failed": "failed",
        "missing": "missing",
        "unfinished": "not finished",
        "unscored": "without a validation score",
    }
    counts = {words: int(summary[kind].sum()) for kind, words in kinds.items()}
    parts = [f"{count} {words}" for words, count in counts.items() if count]
    silent = [
        str(arm) for arm, seeds in zip(summary["arm"], summary["seeds"], strict=True) if not seeds
    ]
    gaps = [f"of {expected} trials {', '.join(parts)}"] if parts else []
    return gaps + ([f"no result from {', '.join(silent)}"] if silent else [])
