"""Which arms are better, worse or equivalent; `answer` says it in sentences.

All comparisons are differences of scores over replicates, paired over seeds; they differ in what
holds jointly.

Pairs that are asked for together are adjusted by the step-down rule of Holm (1979), so that any of
them is wrong in at most 5 % of cases. Each interval has the level at which its own comparison was
decided, so that it excludes zero exactly where a difference is told; all of them together are not
an interval of 95 %. The contrast that a search declares before it runs is a family of one.
"Equivalent" is said where two one-sided tests show that the difference lies within the margin
(Schuirmann 1987), never because a difference was not found.

Which arm is the best is known only after seeing the scores, so all comparisons with it hold at
95 % jointly: each interval has level 1 - 0.05 / (arms - 1). That covers the choice of the best
(Hsu 1984, multiple comparisons with the best; Bonferroni's bound in place of Dunnett's quantile).

A pair to which replicates are added until it is decided has an interval that may be looked at after
each of them: the mean of normal differences of unknown variance has a confidence sequence from the
t statistic with a normal mixture over effect sizes (Lai 1976; Wang and Ramdas 2024). Under any true
mean, the chance that it ever leaves it out, at whatever number of replicates, is at most 5 %.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pandas as pd

from tuneparts.core import schema
from tuneparts.core.errors import ConfigError
from tuneparts.results.rendering import NOTHING, Table
from tuneparts.results.select import by_seed, column
from tuneparts.results.statistics import (
    FEWEST,
    Contrast,
    Interval,
    Worth,
    contrast,
    estimate,
    worth,
)
from tuneparts.search.card import RunCard

_MISTAKES = 0.05
"""How often any comparison of one family may be wrong."""
_MIXTURE = 1.0
"""Variance of the effect sizes that a confidence sequence is tuned to; it is valid for any."""
_NUMERALS = {0: "no replicates say", 1: "one replicate says", 2: "two replicates say"}


@dataclass(frozen=True)
class Decision:
    """What the replicates so far allow to say of a pair of arms."""

    num: int
    mean: float
    interval: Interval
    verdict: str
    """`better`, `worse` or `equivalent` of the first arm; empty while nothing is decided."""


@dataclass(frozen=True)
class Comparison:
    """What the replicates say about one pair of arms by one metric."""

    one: str
    other: str
    difference: float
    """Mean of the first minus mean of the second."""
    interval: Interval | None
    """Of the difference, at the level at which this comparison was decided; None below `FEWEST`."""
    p_value: float
    """Of no difference, adjusted for the number of comparisons; NaN below `FEWEST`."""
    p_equivalent: float | None
    """Of a difference beyond the margin, adjusted likewise; None without a margin."""
    effect: float
    """Difference in standard deviations of the paired differences; NaN where they are not paired
    or do not vary, and below `FEWEST`."""
    improvement: float
    """Share of pairs of replicates in which the first is better, ties counted half; NaN below
    `FEWEST`."""
    num: int
    """Replicates on the smaller side."""
    is_paired: bool
    verdict: str
    """Of the first arm."""
    decision: Decision | None = None
    """What holds where replicates were added until this pair was decided."""


@dataclass(frozen=True)
class Verdict:
    """The arms by one metric: their order, and how far the first is ahead of each other one."""

    metric: str
    ranked: tuple[str, ...]
    """Arms that have the metric, best mean first; equal ones in the order of the search."""
    gaps: Mapping[str, Comparison]
    """The first arm compared with each other arm; the intervals hold jointly."""

    @property
    def alike(self) -> tuple[str, ...]:
        """Arms that cannot be told from the first: the interval of the difference has zero."""
        return tuple(arm for arm, gap in self.gaps.items() if gap.interval and 0.0 in gap.interval)

    @property
    def winner(self) -> str | None:
        """The first arm if it is ahead of every other one; None where the data leaves it open."""
        is_open = any(gap.interval is None for gap in self.gaps.values())
        return None if not self.gaps or is_open or self.alike else self.ranked[0]


def judge(selected: pd.DataFrame, metadata: RunCard, metric: str) -> Verdict:
    """Compare the best arm by a metric with all others over the trials selected by validation."""
    scores = {arm.name: by_seed(selected, arm.name, metric) for arm in metadata.arms}
    is_up = schema.lookup(metric).direction is schema.Direction.UP
    means = {arm: estimate(list(own.values())).mean for arm, own in scores.items() if own}
    ranked = sorted(means, key=lambda name: -means[name] if is_up else means[name])
    # Scores on different examples are no comparison, so no arm wins.
    is_one_task = len({arm.judged_on for arm in metadata.arms if arm.name in means}) <= 1
    pairs = [(ranked[0], name) for name in ranked[1:]] if is_one_task else []
    found = verdicts(scores, pairs, metric=metric, is_up=is_up, jointly=True)
    return Verdict(metric, tuple(ranked), {one.other: one for one in found})


def compare(
    selected: pd.DataFrame,
    metadata: RunCard,
    pairs: Sequence[tuple[str, str]],
    *,
    metric: str = "test/accuracy",
    within: float | None = None,
) -> list[Comparison]:
    """Compare pairs of arms, adjusted for each other, over the trials that `select.select` gave.

    The metric has a direction; `within` is a margin of equivalence in its units.
    """
    is_up = _is_up(metric)
    if within is not None and not (math.isfinite(within) and within > 0):
        raise ConfigError(f"a margin of equivalence is above 0, but got {within}.")
    scores = _scores(selected, metadata, pairs, metric)
    found = verdicts(scores, pairs, metric=metric, is_up=is_up, within=within)
    for i, pair in enumerate(pairs):
        if pair in metadata.until_decided:
            decided = decision(selected, metadata, pair, metric=metric, within=within)
            found[i] = replace(found[i], decision=decided)
    return found


def decision(
    selected: pd.DataFrame,
    metadata: RunCard,
    pair: tuple[str, str],
    *,
    metric: str,
    within: float | None = None,
) -> Decision:
    """What the replicates that two arms share allow to say, however often one looks."""
    is_up = _is_up(metric)
    one, other = _scores(selected, metadata, [pair], metric).values()
    differences = [one[seed] - other[seed] for seed in sorted(set(one) & set(other))]
    return decide(differences, within=within, is_up=is_up)


def verdicts(
    scores: Mapping[str, Mapping[int, float]],
    pairs: Sequence[tuple[str, str]],
    *,
    metric: str = "test/accuracy",
    is_up: bool = True,
    within: float | None = None,
    jointly: bool = False,
) -> list[Comparison]:
    """Compare pairs of arms, adjusted for each other, by their scores of each seed.

    Where they hold `jointly`, intervals have Bonferroni's level, else that of `holm`.
    """
    gaps = [contrast(scores[one], scores[other]) for one, other in pairs]
    p_values = [_p_values(gap, within) for gap in gaps]
    different, levels = holm([p for p, _ in p_values])
    same, _ = holm([p for _, p in p_values])
    if jointly:
        levels = [1 - _MISTAKES / len(pairs) for _ in pairs]
    found = []
    rows = zip(pairs, gaps, different, levels, same, strict=True)
    for (one, other), gap, p, level, p_same in rows:
        says, deviation = gap.num >= FEWEST, gap.se * math.sqrt(gap.num)
        varies = says and gap.is_paired and deviation > 0
        better = _improvement(scores[one], scores[other], gap, is_up=is_up)
        said = Comparison(
            one=one, other=other, difference=gap.mean, num=gap.num, is_paired=gap.is_paired,
            interval=_bounded(gap.interval(level), metric) if says else None,
            p_value=p if says else math.nan,
            p_equivalent=None if within is None else p_same if says else math.nan,
            effect=gap.mean / deviation if varies else math.nan,
            improvement=better if says else math.nan,
            verdict=_verdict(gap, p, p_same, within, is_up=is_up),
        )  # fmt: skip
        found.append(said)
    return found


def _bounded(interval: Interval | None, metric: str) -> Interval | None:
    """An interval of a difference without what differences of the metric cannot be."""
    if interval is None:
        return None
    return Interval(*schema.lookup(metric).bounded_gap(interval.low, interval.high), interval.level)


def nothing_said(num: int) -> str:
    """What to say of too few replicates.

    Example:
        >>> nothing_said(2)
        'two replicates say nothing'
    """
    return f"{_NUMERALS.get(num, f'{num} replicates say')} nothing"


def holm(p_values: Sequence[float], mistakes: float = _MISTAKES) -> tuple[list[float], list[float]]:
    """Adjust p values by the step-down rule of Holm (1979).

    Returns:
        The adjusted p values, and for each the level of the interval that excludes zero exactly
        where the adjusted p value is at most `mistakes`.

    Example:
        >>> holm([0.01, 0.04])[0]
        [0.02, 0.04]
    """
    p = np.asarray(p_values, dtype=float)
    order, left = np.argsort(p, kind="stable"), np.arange(len(p), 0, -1)
    stepped = np.minimum(1.0, np.maximum.accumulate(left * p[order]))
    # After the first that is not rejected nothing is: its level holds for the rest.
    at = np.minimum(np.arange(len(p)), np.count_nonzero(stepped <= mistakes))
    back = np.argsort(order)
    return stepped[back].tolist(), (1 - mistakes / left[at])[back].tolist()


def confidence_sequence(values: Sequence[float], level: float = 0.95) -> Interval:
    """The interval of the mean after these values, valid at any time of looking.

    Early on it is unbounded. The e-process is `sqrt(1 / (1 + n g))` times the ratio of t densities;
    the interval holds the means at which it is below `1 / (1 - level)`, in closed form.

    Example:
        >>> confidence_sequence([0.01, 0.012, 0.011, 0.013, 0.009, 0.011]).low > 0
        True
    """
    num, point = len(values), estimate(values)
    spread = 1 + num * _MIXTURE
    ratio = (math.sqrt(spread) / (1 - level)) ** (2 / num) if num > 1 else math.inf
    if math.isnan(point.se) or ratio >= spread:
        return Interval(-math.inf, math.inf, level)
    t_squared = (num - 1) * (ratio - 1) / (1 - ratio / spread)
    half = math.sqrt(t_squared) * point.se
    return Interval(point.mean - half, point.mean + half, level)


def decide(
    differences: Sequence[float], *, within: float | None = None, is_up: bool = True
) -> Decision:
    """Decide a pair by its paired differences, first arm minus second, one per replicate."""
    if within is not None and not within > 0:
        raise ConfigError(f"a margin of equivalence is above 0, but got {within}.")
    found, verdict = confidence_sequence(differences), ""
    if found.low > 0 or found.high < 0:
        verdict = "better" if (found.low > 0) == is_up else "worse"
    if within is not None and -within < found.low and found.high < within:
        verdict = "equivalent"
    return Decision(len(differences), estimate(differences).mean, found, verdict)


def table(
    comparisons: Sequence[Comparison],
    metadata: RunCard,
    *,
    metric: str,
    within: float | None = None,
    remark: str = "",
) -> Table:
    """The comparisons for people, one row each; `remark` is a note of its own."""
    gap = f"+.{schema.lookup(metric).decimals}f"
    rows = [
        [
            f"{one.one} - {one.other}", one.verdict, format(one.difference, gap),
            NOTHING if one.interval is None else _span(one.interval, gap),
            _shown(one.p_value, ".3g"), _shown(one.p_equivalent, ".3g"),
            _shown(one.effect, "+.2f"), _shown(one.improvement, ".2f"), one.num,
        ]
        for one in comparisons
    ]  # fmt: skip
    headers = ["pair", "verdict", "difference", "interval", "p", "p equivalent", "effect"]
    headers += ["P(better)", "replicates"]
    margin = "" if within is None else f" Margin of equivalence: {within:g}."
    notes = [
        f"By {metric}, the first arm minus the second, over the trials that validation selected. "
        f"P values are adjusted for {len(comparisons)} "
        f"comparison{'s' * (len(comparisons) != 1)} (Holm 1979), and an interval has the level at "
        f"which its comparison was decided.{margin}",
        "effect: standard deviations of the paired differences; P(better): share of replicates in "
        "which the first arm is better.",
    ]
    notes += [remark] if remark else []
    notes += [
        f"Replicates were added until {one.one}:{one.other} was decided, so an interval of that "
        f"pair above is too narrow; at any time of looking {_span(one.decision.interval, gap)} "
        f"holds: {one.decision.verdict or 'cannot tell'}."
        for one in comparisons
        if one.decision is not None
    ]
    if not all(one.is_paired for one in comparisons):
        notes.append("Pairs with fewer than two common seeds: by Welch's error (1947).")
    return Table.of_rows(
        headers, rows, heading=f"{metadata.name}: comparisons", numbers=headers[2:], notes=notes,
        details={"P(better)": 3, "effect": 2, "p equivalent": 1, "p": 1},
    )  # fmt: skip


def _span(interval: Interval, form: str) -> str:
    return f"{interval.low:{form}} to {interval.high:{form}}"


def _shown(value: float | None, form: str) -> str:
    return NOTHING if value is None or math.isnan(value) else format(value, form)


def _verdict(
    gap: Contrast, p_different: float, p_same: float, within: float | None, *, is_up: bool
) -> str:
    if gap.num < FEWEST:
        return nothing_said(gap.num)
    is_equivalent = within is not None and p_same <= _MISTAKES
    if p_different <= _MISTAKES:
        word = "better" if (gap.mean > 0) == is_up else "worse"
        return f"{word}, by less than {within:g}" if is_equivalent else word
    return f"equivalent within {within:g}" if is_equivalent else "cannot tell"


def _p_values(gap: Contrast, within: float | None) -> tuple[float, float]:
    """Of no difference (two-sided), and of one beyond the margin (two one-sided tests)."""
    if gap.num < FEWEST:
        return 1.0, 1.0
    different = min(1.0, 2 * min(gap.above(0), gap.below(0)))
    return different, 1.0 if within is None else max(gap.above(-within), gap.below(within))


def _improvement(
    one: Mapping[int, float], other: Mapping[int, float], gap: Contrast, *, is_up: bool
) -> float:
    paired = [(one[seed], other[seed]) for seed in set(one) & set(other)]
    pairs = paired if gap.is_paired else list(product(one.values(), other.values()))
    wins = [0.5 if a == b else float((a > b) == is_up) for a, b in pairs]
    return sum(wins) / len(wins) if wins else math.nan


def _scores(
    selected: pd.DataFrame, metadata: RunCard, pairs: Sequence[tuple[str, str]], metric: str
) -> dict[str, dict[int, float]]:
    """By arm and seed; refuses names that are no arms, and arms that cannot be compared."""
    for one, other in pairs:
        first, second = metadata.arm(one), metadata.arm(other)
        if one == other:
            raise ConfigError(f"an arm is compared with another one, but got `{one}` twice.")
        if first.judged_on != second.judged_on:
            raise ConfigError(
                f"arms are compared on the same examples, but `{one}` and `{other}` are judged on "
                "different ones."
            )
    scores = {name: by_seed(selected, name, metric) for pair in pairs for name in pair}
    if silent := next((name for name, own in scores.items() if not own), None):
        raise ConfigError(
            f"arms are compared by a metric that they have, but no selected trial of `{silent}` "
            f"has `{metric}`. Choose another metric or arm."
        )
    return scores


def _is_up(metric: str) -> bool:
    direction = schema.lookup(metric).direction
    if direction is schema.Direction.NONE:
        raise ConfigError(
            f"arms are compared by a metric of which more is better or worse, but `{metric}` has "
            "no direction."
        )
    return direction is schema.Direction.UP


def equivalent_trials(
    trials: pd.DataFrame,
    selected: pd.DataFrame,
    metadata: RunCard,
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
