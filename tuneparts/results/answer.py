"""The question of a search answered in computed sentences, with their uncertainty.

An arm is called ahead of another only where the interval of their difference leaves out zero; the
comparisons are those of `compare`.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import pandas as pd

from tuneparts.core import schema
from tuneparts.results.compare import (
    Comparison,
    Verdict,
    compare,
    equivalent_trials,
    judge,
    nothing_said,
)
from tuneparts.results.select import column
from tuneparts.results.statistics import FEWEST, estimate, student_interval
from tuneparts.results.tables import label, number, spread
from tuneparts.search.card import ArmCard, RunCard

_MOST_NAMED = 3
"""Arms that are named where many cannot be told apart; the table has all of them."""


def answer(
    trials: pd.DataFrame,
    selected: pd.DataFrame,
    summary: pd.DataFrame,
    metadata: RunCard,
    metric: str,
) -> str:
    """The question of a search answered: the contrast that it declares, then the best arm.

    There is one sentence on the best arm for each set of examples that arms are judged on.
    """
    first = _contrast(trials, selected, metadata, metric)
    told = metadata.compare if first else ()
    groups: dict[str, list[ArmCard]] = {}
    for arm in metadata.arms:
        if arm.name not in metadata.references and arm.competes:
            groups.setdefault(arm.judged_on, []).append(arm)
    answers = [first] if first else []
    for judged_on, arms in (groups or {"": list(metadata.arms)}).items():
        names = [arm.name for arm in arms]
        known = selected[selected["arm"].isin(names)]
        verdict = judge(known, replace(metadata, arms=tuple(arms)), metric)
        # What failed in a reference arm is told too.
        shown = summary["arm"].isin(names) | (len(groups) <= 1)
        where = f"With {judged_on or 'the data as it is'}: " if len(groups) > 1 else ""
        answers.append(where + best(verdict, summary[shown], told=told))
    return " ".join(answers)


def _contrast(trials: pd.DataFrame, selected: pd.DataFrame, metadata: RunCard, metric: str) -> str:
    """State the contrast of a search; empty where it declares none or has no scores of it yet.

    It is a difference, the number of trials that one run is worth, or the values that both found.
    """
    if not metadata.compare:
        return ""
    one, other = metadata.compare
    scored = selected.assign(score=column(selected, metric)).dropna(subset=["score"])
    if not {one, other} <= set(scored["arm"]):
        return ""
    found = compare(selected, metadata, [(one, other)], metric=metric, within=metadata.within)[0]
    if metadata.answer == "found":
        text = "; ".join(_found(selected, metadata, name) for name in metadata.found)
    elif metadata.answer == "equivalent_trials":
        text = _worth(trials, selected, metadata, metric)
    else:
        text = ""
    parts = [text, difference(found, metric)] if text else [difference(found, metric)]
    bounds = _references(scored, metadata, metric)
    sentences = [part[0].upper() + part[1:] if part is text else part for part in parts]
    return "; ".join([*sentences, *bounds]) + "."


def difference(found: Comparison, metric: str) -> str:
    """A comparison in words, with its interval."""
    quantity = schema.lookup(metric)
    pair = f"{found.one} - {found.other}"
    gap = f"{label(metric)} of {pair} is {found.difference:+.{quantity.decimals}f}"
    if found.interval is None:
        return f"{gap}, but {nothing_said(found.num)}"
    low, high = (f"{x:+.{quantity.decimals}f}" for x in (found.interval.low, found.interval.high))
    how = f"paired over {found.num} replicates" if found.is_paired else "replicates not matched"
    level = f"{100 * found.interval.level:.4g} %"  # more than 95 % where it is one of several
    return f"{gap} ({level} interval {low} to {high}, {how}): {_judged(found)}"


def _judged(found: Comparison) -> str:
    if found.verdict.startswith("cannot tell"):
        return f"{found.one} cannot be told from {found.other}"
    if found.verdict.startswith("equivalent"):
        return f"{found.one} and {found.other} are {found.verdict}"
    word, comma, rest = found.verdict.partition(",")
    return f"{found.one} is {word} than {found.other}{comma}{rest}"


def _worth(trials: pd.DataFrame, selected: pd.DataFrame, metadata: RunCard, metric: str) -> str:
    one, other = metadata.compare
    found = equivalent_trials(trials, selected, metadata, arm=one, against=other, metric=metric)
    if found is None:
        return ""
    bounds = f" ({found.interval})" if found.interval else f", but {nothing_said(found.num)}"
    noun = "trial" if found.says.split()[-1] == "1" else "trials"
    return f"one run of {one} is worth {found.says} {noun} of {other}{bounds}"


def _found(selected: pd.DataFrame, metadata: RunCard, name: str) -> str:
    """What both arms found of a hyper."""
    decimals, true = schema.lookup(name).decimals, metadata.found[name]
    parts = []
    for arm in metadata.compare:
        values = column(selected[selected["arm"] == arm], name).dropna().tolist()
        mean = estimate(values).mean
        interval = student_interval(values) if len(values) >= FEWEST else None
        bounds = nothing_said(len(values))
        if interval is not None:
            low, high = schema.lookup(name).bounded(interval.low, interval.high)
            bounds = f"95 % interval {number(low, decimals)} to {number(high, decimals)}"
        known = not math.isnan(mean)
        parts.append(f"{arm} {number(mean, decimals)} ({bounds})" if known else f"{arm} none")
    truth = "" if true is None else f", where the data has {number(true, decimals)}"
    return f"{label(name)}: found by {' and by '.join(parts)}{truth}"


def _references(scored: pd.DataFrame, metadata: RunCard, metric: str) -> list[str]:
    decimals = schema.lookup(metric).decimals
    means = {
        name: estimate(scored[scored["arm"] == name]["score"].to_numpy()).mean
        for name in metadata.references
        if name in set(scored["arm"])
    }
    shown = ", ".join(f"{name} {number(mean, decimals)}" for name, mean in means.items())
    return [f"for reference: {shown}"] if shown else []


def best(verdict: Verdict, summary: pd.DataFrame, *, told: Collection[str] = ()) -> str:
    """Say which arm is best, how far ahead of the next one, at what cost, and what failed.

    `summary` has one row per arm (`select.summarise`). The difference of the two arms in `told` was
    said already.
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


def _gap(gap: Comparison, metric: str, num_comparisons: int) -> str:
    assert gap.interval is not None
    decimals = schema.lookup(metric).decimals
    low, high = (number(x, decimals) for x in (gap.interval.low, gap.interval.high))
    how = f"paired over {gap.num} seeds" if gap.is_paired else "Welch, seeds not matched"
    jointly = f" (jointly over {num_comparisons} comparisons)" if num_comparisons > 1 else ""
    span = f"95 % interval{jointly} {low} to {high}"
    return f"difference {number(gap.difference, decimals)}, {span}, {how}"


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
