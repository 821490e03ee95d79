"""Which arms are better, worse or equivalent; `answer` says it in sentences.

Differences of scores are paired over seeds. Pairs that are asked for together are adjusted by the
step-down rule of Holm (1979), so that any of them is wrong in at most 5 % of cases; an interval has
the level at which its comparison was decided, so that it excludes zero exactly where a difference
is claimed. "Equivalent" is said where two one-sided tests show it (Schuirmann 1987).

Which arm is the best is known only after seeing the scores, so all comparisons with it hold at
95 % jointly: each interval has level 1 - 0.05 / (arms - 1). That covers the choice of the best
(Hsu 1984, multiple comparisons with the best; Bonferroni's bound in place of Dunnett's quantile).

A pair to which seeds are added until it is decided has an interval that may be looked at after
each of them: the confidence sequence of the mean of normal differences of unknown variance, from
the t statistic with a normal mixture over effect sizes (Lai 1976; Wang and Ramdas 2024). The chance
that it ever leaves out the true mean, at whatever number of seeds, is at most 5 %.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

import numpy as np

from tuneparts.core import schema
from tuneparts.results.rendering import NOTHING, Table
from tuneparts.results.statistics import FEWEST, _contrast, _estimate, _Interval
from tuneparts.results.tables import label

_MISTAKES = 0.05
"""How often any comparison of one family may be wrong."""
_MIXTURE = 1.0
"""Variance of the effect sizes that a confidence sequence is tuned to; it is valid for any."""


@dataclass(frozen=True)
class Decision:
    """What the seeds so far allow to say of a pair of arms."""

    num: int
    mean: float
    interval: _Interval
    verdict: str  # `better`, `worse` or `equivalent` of the first arm; empty while undecided


@dataclass(frozen=True)
class Comparison:
    """One pair of arms compared by one metric over seeds; little is said below `FEWEST`."""

    one: str
    other: str
    difference: float
    """Mean of the first minus mean of the second."""
    interval: _Interval | None
    """Of the difference, at the level at which this comparison was decided."""
    p_value: float
    """Of no difference, adjusted for the number of comparisons."""
    p_equivalent: float | None
    """Of a difference beyond the margin, adjusted likewise; None without a margin."""
    effect: float
    """Difference in standard deviations of the paired differences; NaN where there are none."""
    improvement: float
    """Share of pairs of seeds in which the first is better, ties counted half."""
    num: int
    """Seeds on the smaller side."""
    is_paired: bool
    verdict: str
    """Of the first arm."""
    decision: Decision | None = None
    """What holds where seeds were added until this pair was decided."""
    metric: str = "test/accuracy"

    def __str__(self) -> str:
        gap = f"+.{schema.lookup(self.metric).decimals}f"
        text = f"{label(self.metric)} of {self.one} - {self.other} is {self.difference:{gap}}"
        if self.interval is None:
            return f"{text}, but {_too_few(self.num)}"
        span = f"interval {self.interval.low:{gap}} to {self.interval.high:{gap}}"
        how = f"paired over {self.num} seeds" if self.is_paired else "seeds not matched"
        level = f"{100 * self.interval.level:.4g} %"  # more than 95 % where it is one of several
        word, comma, rest = self.verdict.partition(",")
        judged = f"{self.one} is {word} than {self.other}{comma}{rest}"
        if word == "inconclusive":
            judged = f"{self.one} compared with {self.other} is inconclusive"
        elif word.startswith("equivalent"):
            judged = f"{self.one} and {self.other} are {self.verdict}"
        return f"{text} ({level} {span}, {how}): {judged}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(str(self))}</p>"


@dataclass(frozen=True)
class _Verdict:
    """The arms by one metric: their order, and how far the first is ahead of each other one."""

    metric: str
    ranked: tuple[str, ...]
    """Arms that have the metric, best mean first; equal ones in the order of the search."""
    gaps: Mapping[str, Comparison]
    """The first arm compared with each other arm; the intervals hold jointly."""

    @property
    def alike(self) -> tuple[str, ...]:
        """Arms that are not shown to differ from the first: the interval has zero."""
        return tuple(arm for arm, gap in self.gaps.items() if gap.interval and 0.0 in gap.interval)

    @property
    def winner(self) -> str | None:
        """The first arm if it is ahead of every other one; None where the data leaves it open."""
        is_open = any(gap.interval is None for gap in self.gaps.values())
        return None if not self.gaps or is_open or self.alike else self.ranked[0]


def is_up(metric: str) -> bool:
    """Whether more of a metric is better."""
    return schema.lookup(metric).direction is schema.Direction.UP


def _verdicts(
    scores: Mapping[str, Mapping[int, float]],
    pairs: Sequence[tuple[str, str]],
    *,
    metric: str = "test/accuracy",
    within: float | None = None,
    jointly: bool = False,
) -> list[Comparison]:
    """Compare pairs of arms by their scores of each seed; intervals of all may hold `jointly`."""
    gaps = [_contrast(scores[one], scores[other]) for one, other in pairs]
    p_different, p_same = [1.0] * len(pairs), [1.0] * len(pairs)
    for i, gap in enumerate(gaps):
        if gap.num >= FEWEST:
            p_different[i] = min(1.0, 2 * min(gap.above(0), gap.below(0)))
            if within is not None:  # two one-sided tests
                p_same[i] = max(gap.above(-within), gap.below(within))
    (different, levels), (same, _) = _holm(p_different), _holm(p_same)
    if jointly:
        levels = [1 - _MISTAKES / len(pairs) for _ in pairs]
    found, better = [], 1 if is_up(metric) else -1
    for i, ((one, other), gap) in enumerate(zip(pairs, gaps, strict=True)):
        a, b, says = scores[one], scores[other], gap.num >= FEWEST
        every = np.subtract.outer(list(a.values()), list(b.values()))
        rivals = [a[seed] - b[seed] for seed in set(a) & set(b)] if gap.is_paired else every
        is_same = within is not None and same[i] <= _MISTAKES
        verdict = f"equivalent within {within:g}" if is_same else "inconclusive"
        if different[i] <= _MISTAKES:
            verdict = "better" if (gap.mean > 0) == (better > 0) else "worse"
            verdict += f", by less than {within:g}" if is_same else ""
        interval = gap.interval(levels[i]) if says else None
        if interval is not None:  # without what differences of the metric cannot be
            low, high = schema.lookup(metric).bounded_gap(interval.low, interval.high)
            interval = replace(interval, low=low, high=high)
        varies = says and gap.is_paired and gap.se > 0
        found.append(Comparison(
            one=one, other=other, difference=gap.mean, num=gap.num, is_paired=gap.is_paired,
            interval=interval, p_value=different[i] if says else math.nan,
            p_equivalent=None if within is None else same[i] if says else math.nan,
            effect=gap.mean / (gap.se * math.sqrt(gap.num)) if varies else math.nan,
            improvement=float(np.mean(better * np.sign(rivals) + 1)) / 2 if says else math.nan,
            verdict=verdict if says else _too_few(gap.num), metric=metric,
        ))  # fmt: skip
    return found


def _too_few(num: int) -> str:
    return f"{num} seed{' is' if num == 1 else 's are'} too few for an interval"


def _holm(p_values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Adjusted p values by the step-down rule of Holm (1979), and the level of each interval."""
    p = np.asarray(p_values, dtype=float)
    order, left = np.argsort(p, kind="stable"), np.arange(len(p), 0, -1)
    stepped = np.minimum(1.0, np.maximum.accumulate(left * p[order]))
    # After the first that is not rejected nothing is: its level holds for the rest.
    at = np.minimum(np.arange(len(p)), np.count_nonzero(stepped <= _MISTAKES))
    back = np.argsort(order)
    return stepped[back].tolist(), (1 - _MISTAKES / left[at])[back].tolist()


def _confidence_sequence(values: Sequence[float], level: float = 0.95) -> _Interval:
    """The interval of the mean after these values, valid at any time of looking.

    Early on it is unbounded. The e-process is `sqrt(1 / (1 + n g))` times the ratio of t densities;
    the interval holds the means at which it is below `1 / (1 - level)`, in closed form.
    """
    num, point = len(values), _estimate(values)
    spread = 1 + num * _MIXTURE
    ratio = (math.sqrt(spread) / (1 - level)) ** (2 / num) if num > 1 else math.inf
    if math.isnan(point.se) or ratio >= spread:
        return _Interval(-math.inf, math.inf, level)
    t_squared = (num - 1) * (ratio - 1) / (1 - ratio / spread)
    half = math.sqrt(t_squared) * point.se
    return _Interval(point.mean - half, point.mean + half, level)


def _decide(
    differences: Sequence[float], *, within: float | None = None, is_up: bool = True
) -> Decision:
    """Decide a pair by its paired differences, first arm minus second, one per seed."""
    found, verdict = _confidence_sequence(differences), ""
    if found.low > 0 or found.high < 0:
        verdict = "better" if (found.low > 0) == is_up else "worse"
    if within is not None and -within < found.low and found.high < within:
        verdict = "equivalent"
    return Decision(len(differences), _estimate(differences).mean, found, verdict)


def table(
    comparisons: Sequence[Comparison], heading: str, metric: str, within: float | None
) -> Table:
    """The comparisons for people, one row each."""
    gap = f"+.{schema.lookup(metric).decimals}f"

    def span(interval: _Interval | None) -> str:
        return NOTHING if interval is None else f"{interval.low:{gap}} to {interval.high:{gap}}"

    def shown(value: float | None, form: str) -> str:
        return NOTHING if value is None or math.isnan(value) else format(value, form)

    rows = [
        [
            f"{one.one} - {one.other}", one.verdict, format(one.difference, gap),
            span(one.interval), shown(one.p_value, ".3g"), shown(one.p_equivalent, ".3g"),
            shown(one.effect, "+.2f"), shown(one.improvement, ".2f"), one.num,
        ]
        for one in comparisons
    ]  # fmt: skip
    headers = ["pair", "verdict", "difference", "interval", "p", "p equivalent", "effect"]
    headers += ["P(better)", "seeds"]
    margin = "" if within is None else f" Margin of equivalence: {within:g}."
    count = f"{len(comparisons)} comparison{'s' * (len(comparisons) != 1)}"
    notes = [
        f"By {metric}, the first arm minus the second, over the trials that validation selected. "
        f"P values are adjusted for {count} (Holm 1979), and an interval has the level at which "
        f"its comparison was decided.{margin}",
        "effect: standard deviations of the paired differences; P(better): share of seeds in which "
        "the first arm is better.",
    ]
    notes += [
        f"Seeds were added until {one.one}:{one.other} was decided, so an interval of that "
        f"pair above is too narrow; at any time of looking {span(one.decision.interval)} "
        f"holds: {one.decision.verdict or 'inconclusive'}."
        for one in comparisons
        if one.decision is not None
    ]
    if not all(one.is_paired for one in comparisons):
        notes.append("Pairs with fewer than two common seeds: by Welch's error (1947).")
    return Table.of_rows(
        headers, rows, heading=heading, numbers=headers[2:], notes=notes,
        details={"P(better)": 3, "effect": 2, "p equivalent": 1, "p": 1},
    )  # fmt: skip
