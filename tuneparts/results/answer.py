"""The question of a search answered in sentences, computed from the comparisons of `compare`.

An arm is called ahead of another only where the interval of their difference leaves out zero.
"""

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from tuneparts.core import schema
from tuneparts.results.compare import _too_few, _Verdict
from tuneparts.results.select import _by_seed
from tuneparts.results.statistics import FEWEST, _estimate
from tuneparts.results.tables import _spread, label, number
from tuneparts.search.card import ArmCard

if TYPE_CHECKING:
    from tuneparts.results.run_data import RunData

_MOST_NAMED = 3
"""Arms that are named where many are alike; the table has all of them."""
_GAPS = ("failed", "missing", "unfinished", "not_started", "unscored")
_WORDS = {"unfinished": "not finished", "unscored": "without a validation score"}


def _answer(data: "RunData") -> str:
    metadata, summary = data.metadata, data.summary
    first = _contrast(data)
    said = metadata.compare if first else ()
    groups: dict[str, list[ArmCard]] = {}
    for arm in metadata.arms:
        if arm.name not in metadata.references and not arm.is_tuning:
            groups.setdefault(arm.judged_on, []).append(arm)
    answers = [first] if first else []
    for judged_on, arms in (groups or {"": list(metadata.arms)}).items():
        verdict = data.verdict(data.answer_metric, arms)
        # What failed in a reference arm is said too.
        shown = summary["arm"].isin([arm.name for arm in arms]) | (len(groups) <= 1)
        where = f"With {judged_on or 'the data as it is'}: " if len(groups) > 1 else ""
        answers.append(where + best(verdict, summary[shown], said=said))
    return " ".join(answers)


def _contrast(data: "RunData") -> str:
    """State the contrast of a search; empty where it declares none or has no scores of it yet."""
    metadata, selected, metric = data.metadata, data.selected, data.answer_metric
    if not metadata.compare or not all(_by_seed(selected, a, metric) for a in metadata.compare):
        return ""
    one, other = metadata.compare
    parts = []
    if metadata.answer == "found":
        parts = ["; ".join(_found(data, name) for name in metadata.found)]
    elif metadata.answer == "equivalent_trials" and (worth := data.worth(one, other, metric)):
        bounds = f" ({worth.interval})" if worth.interval else f", but {_too_few(worth.num)}"
        noun = "trial" if worth.says.split()[-1] == "1" else "trials"
        parts = [f"one run of {one} is worth {worth.says} {noun} of {other}{bounds}"]
    parts = [part[0].upper() + part[1:] for part in parts if part]
    found = data.compared([(one, other)], metric, metadata.within)
    parts.append(str(found[0]))
    means, decimals = data.summary.set_index("arm")[metric].dropna(), schema.lookup(metric).decimals
    known = [name for name in metadata.references if name in means]
    if shown := ", ".join(f"{name} {number(means[name], decimals)}" for name in known):
        parts.append(f"for reference: {shown}")
    return "; ".join(parts) + "."


def _found(data: "RunData", name: str) -> str:
    metric, true = schema.lookup(name), data.metadata.found[name]
    parts = []
    for arm in data.metadata.compare:
        point = _estimate(list(_by_seed(data.selected, arm, name).values()))
        bounds, interval = _too_few(point.num), point.interval()
        if interval is not None and point.num >= FEWEST:
            low, high = metric.bounded(interval.low, interval.high)
            span = f"{number(low, metric.decimals)} to {number(high, metric.decimals)}"
            bounds = f"95 % interval {span}"
        known = f"{arm} {number(point.mean, metric.decimals)} ({bounds})"
        parts.append(f"{arm} none" if math.isnan(point.mean) else known)
    truth = "" if true is None else f", where the data has {number(true, metric.decimals)}"
    return f"{label(name)}: found by {' and by '.join(parts)}{truth}"


def best(verdict: _Verdict, summary: pd.DataFrame, *, said: Collection[str] = ()) -> str:
    """Say which arm is best, how far ahead of the next one, at what cost, and what failed.

    The difference of the two arms in `said` is in the answer already.
    """
    by_arm = summary.set_index("arm")
    arms, metric = verdict.ranked, verdict.metric
    if not arms:
        parts = [f"No answer: no arm has a finished trial with {label(metric)}"]
    elif len(arms) == 1:
        rest = "no other arm has any" if len(summary) > 1 else "there is no other arm"
        parts = [f"{arms[0]} has {label(metric)} {_score(by_arm, arms[0], metric)}; {rest}"]
    else:
        parts = [_comparison(by_arm, verdict, said)]
    # What is missing from the comparison, so that silence never looks like success.
    counts = {_WORDS.get(kind, kind.replace("_", " ")): int(summary[kind].sum()) for kind in _GAPS}
    if missing := [f"{count} {words}" for words, count in counts.items() if count]:
        parts.append(f"of {int(summary['expected'].sum())} trials {', '.join(missing)}")
    if silent := summary["arm"][summary["seeds"] == 0].tolist():
        parts.append(f"no result from {', '.join(silent)}")
    return "; ".join(parts) + "."


def _comparison(summary: pd.DataFrame, verdict: _Verdict, said: Collection[str]) -> str:
    metric, (first, second) = schema.lookup(verdict.metric), verdict.ranked[:2]
    gap, num = verdict.gaps[second], len(verdict.gaps)
    best = "highest" if metric.direction is schema.Direction.UP else "lowest"
    score = _score(summary, first, metric.name)
    lead = f"{first} has the {best} mean {label(metric.name)}, {score}"
    rival = f"{second}, {_score(summary, second, metric.name)}"
    costs = (float(summary["total_steps"][arm]) for arm in (first, second))
    one, other = ("unknown" if math.isnan(cost) else number(cost, 0) for cost in costs)
    cost = f"at {one} steps per seed against {other}"
    is_said = {first, second} == set(said)
    if gap.interval is None:
        rest = "" if is_said else f"; {_too_few(gap.num)}"
        return f"{lead}, before {rival}, {cost}{rest}"
    between = (gap.difference, gap.interval.low, gap.interval.high)
    mean, low, high = (number(x, metric.decimals) for x in between)
    how = f"paired over {gap.num} seeds" if gap.is_paired else "Welch, seeds not matched"
    jointly = f" (jointly over {num} comparisons)" if num > 1 else ""
    distance = f"difference {mean}, 95 % interval{jointly} {low} to {high}, {how}, {cost}"
    others = [name for name in verdict.alike if name != second]
    if second in verdict.alike and not is_said:
        also = f" (also with {_listed(others)})" if others else ""
        return f"{lead}, but its comparison with {rival}, is inconclusive{also}: {distance}"
    # An arm further behind may still be too uncertain to differ from the first.
    unknown = [name for name, other in verdict.gaps.items() if other.interval is None]
    rest = f"; its comparison with {_listed(others)} is inconclusive" if others else ""
    rest += f"; {_listed(unknown)}: too few seeds for an interval" if unknown else ""
    ahead = f"before {rival}, {cost}" if is_said else f"and is ahead of {rival}: {distance}"
    return f"{lead}, {ahead}{rest}"


def _listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _score(summary: pd.DataFrame, arm: str, metric: str) -> str:
    row = summary.loc[arm].to_dict()
    num, expected = row[f"{metric}:n"], row["seeds_expected"]
    score = _spread(row[metric], row[f"{metric}:se"], schema.lookup(metric).decimals)
    seeds = f"{num} of {expected} seeds" if num < expected else f"{num} seed{'s' * (num > 1)}"
    return f"{score} ({seeds})"
