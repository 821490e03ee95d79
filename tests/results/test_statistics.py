import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tuneparts.core.errors import ConfigError
from tuneparts.results.statistics import (
    _best_of_weights,
    _contrast,
    _curve,
    _estimate,
    _expected_best_interval,
    _worth,
)


def test_estimate_by_hand():
    point = _estimate([1.0, 2.0, 3.0, 6.0])
    assert point.mean == 3.0
    assert point.se == pytest.approx(math.sqrt(14 / 3) / 2)
    assert math.isnan(_estimate([0.5]).se)
    assert math.isnan(_estimate([]).mean)
    assert _estimate([1.0, math.inf]).mean == math.inf


def test_student_interval_agrees_with_scipy():
    x = [0.90, 0.91, 0.87, 0.93]
    interval = _estimate(x).interval(0.9)
    low, high = stats.t.interval(0.9, 3, loc=np.mean(x), scale=stats.sem(x))
    assert (interval.low, interval.high) == pytest.approx((low, high))
    assert _estimate([0.9]).interval() is None


def test_welch_agrees_with_scipy():
    a, b = [1.0, 2.0, 4.0, 3.5], [0.5, 1.0, 0.7]
    ours = _contrast(dict(enumerate(a)), dict(enumerate(b, start=9)))
    assert not ours.is_paired
    theirs = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    interval = ours.interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((theirs.low, theirs.high))


def test_paired_matches_by_seed_and_not_by_order():
    a, b = {2: 0.9, 0: 0.7, 1: 0.8}, {0: 0.6, 1: 0.7, 2: 0.8, 9: 0.0}
    gap = _contrast(a, b)
    assert gap.mean == pytest.approx(0.1)
    assert gap.num == 3
    assert gap.interval(0.95).low == pytest.approx(0.1)  # the same gap in each seed
    assert _contrast({0: 1.0}, {0: 0.5}).interval(0.95) is None


def test_coverage_of_student_and_welch():
    rng, num = np.random.default_rng(1), 1500
    hits = [0, 0]
    for _ in range(num):
        a, b = rng.normal(2, 1, 5), rng.normal(1, 3, 4)
        hits[0] += 2.0 in _estimate(a).interval()
        hits[1] += 1.0 in _contrast(dict(enumerate(a)), dict(enumerate(b, start=9))).interval(0.95)
    four_sigma = 4 * math.sqrt(0.95 * 0.05 / num)
    assert hits[0] / num == pytest.approx(0.95, abs=four_sigma)  # exact for normal data
    assert hits[1] / num == pytest.approx(0.95, abs=four_sigma + 0.01)  # approximate by design


def expected_best(val, test, *, larger_is_better=True):
    """The estimate of one seed, without its bounds."""
    rng = np.random.default_rng(0)
    seeds = [(val, test)]
    options = {"larger_is_better": larger_is_better, "num_resamples": 2}
    return _expected_best_interval(seeds, rng, **options)[0]


@pytest.mark.parametrize("num", [1, 2, 7, 200])
def test_weights_are_hypergeometric(num):
    weights = _best_of_weights(num)
    for n, r in [(1, 0), (1, num - 1), (num, 0), ((num + 1) // 2, num // 3)]:
        exact = math.comb(num - 1 - r, n - 1) / math.comb(num, n)
        assert weights[n - 1, r] == pytest.approx(exact, rel=1e-12)
    np.testing.assert_allclose(weights.sum(axis=1), 1)


@settings(max_examples=40, deadline=None)
@given(
    scores=st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1)), min_size=1, max_size=7),
    up=st.booleans(),
)
def test_expected_best_is_the_mean_over_all_subsets(scores, up):
    val, test = zip(*scores, strict=True)
    sign = -1 if up else 1
    expected = expected_best(val, test, larger_is_better=up)
    np.testing.assert_allclose(_curve(val, test, selects_larger=up), expected)
    for n in range(1, len(scores) + 1):
        picks = [
            test[min(subset, key=lambda i: (sign * val[i], i))]
            for subset in itertools.combinations(range(len(scores)), n)
        ]
        assert expected[n - 1] == pytest.approx(np.mean(picks), abs=1e-12)


def test_scores_that_do_not_match_are_refused():
    with pytest.raises(ConfigError, match="equally long"):
        expected_best([1.0], [1.0, 2.0])
    with pytest.raises(ConfigError, match="without NaN"):
        expected_best([math.nan], [1.0])


def test_interval_of_expected_best_averages_seeds_up_to_the_shortest():
    rng = np.random.default_rng(3)
    seeds = [(rng.random(n), rng.random(n)) for n in (6, 4)]
    mean, low, high = _expected_best_interval(seeds, np.random.default_rng(0))
    exact = np.mean([expected_best(v, t)[:4] for v, t in seeds], axis=0)
    np.testing.assert_allclose(mean, exact)
    assert (low < mean).all()
    assert (mean < high).all()
    again = _expected_best_interval(seeds, np.random.default_rng(0))
    np.testing.assert_array_equal(again[1], low)


def test_coverage_of_expected_best():
    # Trials uniform on (0, 1), validation equal to test: the best of n has mean n / (n + 1).
    rng, num = np.random.default_rng(4), 400
    n = np.array([1, 3, 10])
    hits = np.zeros(3)
    for _ in range(num):
        scores = rng.random(40)
        _, low, high = _expected_best_interval([(scores, scores)], rng, num_resamples=300)
        hits += (low[n - 1] <= n / (n + 1)) & (n / (n + 1) <= high[n - 1])
    # Three points below the level: up to N / 4 the bootstrap is known to be that narrow.
    four_sigma = 4 * math.sqrt(0.95 * 0.05 / num)
    assert (hits / num > 0.95 - 0.03 - four_sigma).all()
    assert (hits / num < 0.95 + four_sigma).all()


def test_an_obvious_number() -> None:
    trials = {seed: ([0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4]) for seed in range(4)}
    found = _worth(trials, dict.fromkeys(range(4), 0.33))  # E of best of 2 is 1/3
    assert found is not None
    assert (found.trials, found.low, found.high, found.num) == (2, 2, 2, 4)
    assert (found.says, found.interval) == ("2", "95 % interval 2 to 2")
    never = _worth(trials, dict.fromkeys(range(4), 0.5))
    assert never is not None
    assert (never.trials, never.low, never.high) == (None, None, None)
    assert "more than 4" in never.says


def test_two_replicates_give_no_interval_and_none_in_common_nothing() -> None:
    trials = {seed: ([0.1, 0.2], [0.1, 0.2]) for seed in range(2)}
    found = _worth(trials, {0: 0.15, 1: 0.15})
    assert found is not None
    assert found.interval == ""
    assert _worth(trials, {7: 0.1}) is None


def test_smaller_may_be_better() -> None:
    trials = {seed: ([0.4, 0.3, 0.2], [0.4, 0.3, 0.2]) for seed in range(3)}
    found = _worth(
        trials, dict.fromkeys(range(3), 0.24), selects_larger=False, larger_is_better=False
    )
    assert found is not None
    assert found.trials == 2  # 0.7 / 3 is below 0.24


def expected_best_of(num: int, noise: float) -> np.ndarray:
    """Expected test score of the best of n by a noisy validation score, of uniform test scores."""
    if not noise:
        return np.arange(1, num + 1) / np.arange(2, num + 2)
    rng = np.random.default_rng(1)
    test = rng.random((20_000, num))
    val = test + noise * rng.standard_normal(test.shape)
    rows = np.arange(len(test))
    return np.array([test[rows, val[:, :n].argmax(axis=1)].mean() for n in range(1, num + 1)])


@pytest.mark.parametrize(("num_seeds", "noise"), [(3, 0.0), (5, 0.0), (5, 0.3), (10, 0.0)])
def test_the_interval_holds_the_truth_as_often_as_it_says(num_seeds: int, noise: float) -> None:
    rng = np.random.default_rng(7)
    num, repeats, hits = 24, 400, 0
    means = expected_best_of(num, noise)
    target = float(means[5] - 0.01)
    true = int(np.flatnonzero(means >= target)[0]) + 1
    for _ in range(repeats):
        shift = 0.1 * rng.standard_normal(num_seeds)  # what a replicate's data does to all arms
        trials, scores = {}, {}
        for seed in range(num_seeds):
            test = rng.random(num)
            trials[seed] = test + noise * rng.standard_normal(num), test + shift[seed]
            scores[seed] = target + shift[seed] + 0.02 * rng.standard_normal()
        found = _worth(trials, scores)
        assert found is not None
        low = num + 1 if found.low is None else found.low
        high = num + 1 if found.high is None else found.high
        hits += low <= true <= high
    # 400 simulations of 95 % have an error of 1.1 %.
    assert hits / repeats >= 0.92
