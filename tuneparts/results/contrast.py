"""The first sentence of an answer: what a search found of the two arms that it set out to compare.

A search declares its contrast before it runs, so this is one comparison and needs no adjustment for
others. It is stated as a difference, as the number of trials that one run is worth, or by the
values that both arms found.
"""

import math

import pandas as pd

from tuneparts.core import schema
from tuneparts.results import equivalents
from tuneparts.results.compare import FEWEST, Comparison, compare, nothing_said
from tuneparts.results.metadata import ReportMetadata
from tuneparts.results.select import column
from tuneparts.results.statistics import estimate, student_interval
from tuneparts.results.tables import label, number


def sentence(
    trials: pd.DataFrame, selected: pd.DataFrame, metadata: ReportMetadata, metric: str
) -> str:
    """State the contrast of a search; empty where it declares none or has no scores of it yet.

    Args:
        trials: one row per trial.
        selected: the selected trial of each (arm, seed).
        metadata: of the search.
        metric: of the test scores.
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


def _worth(
    trials: pd.DataFrame, selected: pd.DataFrame, metadata: ReportMetadata, metric: str
) -> str:
    one, other = metadata.compare
    worth = equivalents.of_arms(trials, selected, metadata, arm=one, against=other, metric=metric)
    if worth is None:
        return ""
    bounds = f" ({worth.interval})" if worth.interval else f", but {nothing_said(worth.num)}"
    noun = "trial" if worth.says.split()[-1] == "1" else "trials"
    return f"one run of {one} is worth {worth.says} {noun} of {other}{bounds}"


def _found(selected: pd.DataFrame, metadata: ReportMetadata, name: str) -> str:
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


def _references(scored: pd.DataFrame, metadata: ReportMetadata, metric: str) -> list[str]:
    decimals = schema.lookup(metric).decimals
    means = {
        name: estimate(scored[scored["arm"] == name]["score"].to_numpy()).mean
        for name in metadata.references
        if name in set(scored["arm"])
    }
    shown = ", ".join(f"{name} {number(mean, decimals)}" for name, mean in means.items())
    return [f"for reference: {shown}"] if shown else []
