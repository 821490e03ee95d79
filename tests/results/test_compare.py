import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.results import compare
from tuneparts.results.compare import _confidence_sequence, _decide, _holm
from tuneparts.results.rendering import NOTHING, to_markdown
from tuneparts.results.run_data import RunData
from tuneparts.search.card import ArmCard, RunCard

ARMS = ("a", "b", "c")


SEEDS = tuple(range(20))


def selected(scores):
    """A run with a trial for each score; scores by arm, in the order of seeds."""
    rows = [
        {"arm": arm, "seed": seed, "index": 0, "test/accuracy": value, "test/nll": -value}
        for arm, values in scores.items()
        for seed, value in enumerate(values)
    ]
    return run_of(pd.DataFrame(rows).assign(outcome="finished", error=""))


def run_of(trials):
    arms = tuple(ArmCard(arm, "standard", 1, SEEDS, steps=1) for arm in ARMS)
    return RunData(RunCard("s", "q", arms), trials, pd.DataFrame())


def compared(data, pairs, metric="test/accuracy", within=None):
    return data.compared(pairs, metric, within)


def draws(seed, num=8, **means):
    rng = np.random.default_rng(seed)
    shared = rng.normal(scale=0.1, size=num)  # what all arms of a replicate have in common
    return {arm: mean + shared + rng.normal(scale=0.01, size=num) for arm, mean in means.items()}


def one(found):
    (only,) = found
    return only


def test_a_difference_is_that_of_the_paired_test():
    scores = draws(0, a=0.9, b=0.88)
    found = one(compared(selected(scores), [("a", "b")], within=0.005))
    gap = scores["a"] - scores["b"]
    assert found.difference == pytest.approx(gap.mean())
    assert found.p_value == pytest.approx(stats.ttest_rel(scores["a"], scores["b"]).pvalue)
    sides = [
        stats.ttest_1samp(gap, -0.005, alternative="greater").pvalue,
        stats.ttest_1samp(gap, 0.005, alternative="less").pvalue,
    ]
    assert found.p_equivalent == pytest.approx(max(sides))
    assert found.effect == pytest.approx(gap.mean() / gap.std(ddof=1))
    assert found.improvement == np.mean(gap > 0)
    low, high = stats.t.interval(0.95, 7, gap.mean(), stats.sem(gap))
    assert (found.interval.low, found.interval.high) == pytest.approx((low, high))
    assert found.verdict == "better"


def test_where_less_is_better_the_smaller_one_is_better():
    data = selected(draws(0, a=0.9, b=0.8))
    better = compared(data, [("a", "b"), ("b", "a")], metric="test/nll")
    assert [found.verdict for found in better] == ["better", "worse"]
    assert [found.improvement for found in better] == [1.0, 0.0]


def test_no_difference_found_is_not_equivalence():
    data = selected(draws(1, num=3, a=0.9, b=0.9))
    found = one(compared(data, [("a", "b")], within=0.001))
    assert found.verdict == "inconclusive"
    wide = one(compared(data, [("a", "b")], within=0.2))
    assert wide.verdict == "equivalent within 0.2"


def test_a_small_difference_can_be_shown_and_shown_to_be_small():
    scores = {"a": np.linspace(0.8, 0.9, 8), "b": np.linspace(0.8, 0.9, 8)}
    scores["a"] = scores["a"] + 0.002 + np.tile([1e-4, -1e-4], 4)
    found = one(compared(selected(scores), [("a", "b")], within=0.01))
    assert found.verdict == "better, by less than 0.01"


def test_two_seeds_are_too_few():
    data = selected({"a": [0.9, 0.91], "b": [0.1, 0.11]})
    found = one(compared(data, [("a", "b")], within=0.5))
    assert found.verdict == "2 seeds are too few for an interval"
    assert found.interval is None
    assert math.isnan(found.p_value)
    assert math.isnan(found.effect)
    table = compare.table([found], "s", metric="test/accuracy", within=0.5)
    texts = {column.header: column.cells[0] for column in table.columns}
    assert texts["interval"] == texts["p"] == texts["p equivalent"] == texts["effect"] == NOTHING
    assert "a - b" in to_markdown([table])


def test_equal_scores_are_equivalent():
    data = selected({"a": [0.5, 0.6, 0.7], "b": [0.5, 0.6, 0.7]})
    found = one(compared(data, [("a", "b")], within=0.01))
    assert (found.verdict, found.improvement) == ("equivalent within 0.01", 0.5)
    assert math.isnan(found.effect)


def test_seeds_that_are_not_shared_are_compared_by_welch():
    data = selected({"a": [0.5, 0.6, 0.7], "b": [0.4, 0.45, 0.5]})
    apart = data.trials.assign(seed=data.trials["seed"] + 10 * (data.trials["arm"] == "b"))
    found = one(compared(run_of(apart), [("a", "b")]))
    assert not found.is_paired
    expected = stats.ttest_ind([0.5, 0.6, 0.7], [0.4, 0.45, 0.5], equal_var=False)
    assert found.p_value == pytest.approx(expected.pvalue)


@pytest.mark.parametrize("seed", range(20))
def test_holm_agrees_with_its_definition(seed):
    rng = np.random.default_rng(seed)
    p = (rng.random(5) ** 3).tolist()
    adjusted, levels = _holm(p)
    for i, value in enumerate(p):
        # The definition: the largest of (m - rank + 1) p over all that come no later.
        before = [q for q in p if q <= value]
        steps = [(5 - sorted(p).index(q)) * q for q in before]
        assert adjusted[i] == pytest.approx(min(1.0, max(steps)))
        # An interval of the level excludes zero exactly where the hypothesis is rejected.
        assert (value <= 1 - levels[i]) == (adjusted[i] <= 0.05)


def by_seed(scores):
    return {arm: dict(enumerate(values.tolist())) for arm, values in scores.items()}


def test_any_of_three_true_nulls_is_rejected_in_at_most_five_per_cent():
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    alarms = 0
    for seed in range(400):
        scores = by_seed(draws(seed, num=5, a=0.5, b=0.5, c=0.5))
        found = compare._verdicts(scores, pairs)
        alarms += any(pair.verdict in {"better", "worse"} for pair in found)
    # Three standard errors of a share of 5 % in 400 are 3.3 %.
    assert alarms / 400 <= 0.083


def test_equivalence_is_said_in_at_most_five_per_cent_at_the_margin():
    said = 0
    for seed in range(400):
        scores = by_seed(draws(seed, num=5, a=0.51, b=0.5))
        found = one(compare._verdicts(scores, [("a", "b")], within=0.01))
        said += "within" in found.verdict or "less than" in found.verdict
    assert said / 400 <= 0.083


@pytest.mark.parametrize(
    ("pairs", "fields", "error", "message"),
    [
        ([("a", "x")], {}, UnknownNameError, "`x`"),
        ([("a", "a")], {}, ConfigError, "twice"),
        ([("a", "b")], {"within": 0.0}, ConfigError, "above 0"),
        ([("a", "b")], {"metric": "size/flops"}, ConfigError, "no selected trial of `a`"),
        ([("a", "b")], {"metric": "test/disagreement"}, ConfigError, "no direction"),
    ],
)
def test_what_cannot_be_compared_is_refused(pairs, fields, error, message):
    data = selected(draws(0, a=0.9, b=0.88))
    with pytest.raises(error, match=message):
        compared(data, pairs, **fields)


AT_MOST, SIMULATIONS = 20, 800


def looked(mean: float, deviation: float = 1.0, *, within: float | None = None, seed: int = 0):
    """Verdict of each simulated run that is stopped as soon as it is decided."""
    rng = np.random.default_rng(seed)
    found = []
    for values in rng.normal(mean, deviation, (SIMULATIONS, AT_MOST)):
        verdicts = (
            _decide(values[:n].tolist(), within=within).verdict for n in range(3, AT_MOST + 1)
        )
        found.append(next((verdict for verdict in verdicts if verdict), ""))
    return found


def test_false_alarms_stay_below_five_per_cent_however_often_one_looks() -> None:
    alarms = sum(map(bool, looked(0.0)))
    assert alarms / SIMULATIONS <= 0.05
    assert alarms > 0  # it is not valid for being silent


def test_a_students_interval_would_not_have_been() -> None:
    values = np.random.default_rng(0).normal(0, 1, (SIMULATIONS, AT_MOST))
    n = np.arange(1, AT_MOST + 1)
    means = values.cumsum(axis=1) / n
    variance = ((values**2).cumsum(axis=1) - n * means**2)[:, 2:] / (n[2:] - 1)
    t = np.abs(means[:, 2:]) / np.sqrt(variance / n[2:])
    assert (t > stats.t.ppf(0.975, n[2:] - 1)).any(axis=1).mean() > 0.15


def test_arms_at_the_margin_are_rarely_called_equivalent() -> None:
    called = looked(0.005, 0.003, within=0.005).count("equivalent")
    assert called / SIMULATIONS <= 0.05


def test_clear_cases_are_decided() -> None:
    assert looked(2.0).count("better") / SIMULATIONS > 0.9
    assert looked(0.0, 0.001, within=0.005).count("equivalent") / SIMULATIONS > 0.9


def test_the_closed_form_is_where_the_e_process_reaches_its_bound() -> None:
    values = [0.3, 0.1, 0.4, 0.2, 0.35, 0.15, 0.3]
    interval, n = _confidence_sequence(values), len(values)
    se = np.std(values, ddof=1) / math.sqrt(n)
    t = (np.mean(values) - interval.low) / se
    spread = 1 + n
    ratio = (1 + t**2 / (n - 1)) / (1 + t**2 / (spread * (n - 1)))
    assert spread**-0.5 * ratio ** (n / 2) == pytest.approx(20)


def test_few_values_say_nothing_and_a_margin_is_positive() -> None:
    assert _confidence_sequence([0.1, 0.1001]).low == -math.inf
    assert _decide([0.1]).verdict == ""
    assert _decide([0.1, 0.11, 0.1, 0.12, 0.1, 0.11], is_up=False).verdict == "worse"
    data = selected(draws(0, a=0.9, b=0.88))
    with pytest.raises(ConfigError, match="above 0"):
        data.decide(("a", "b"), within=0.0)
