import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tuneparts.core.errors import ConfigError
from tuneparts.results.statistics import (
    best_of_weights,
    difference,
    estimate,
    expected_best_interval,
    paired_contrast,
    student_interval,
    welch_contrast,
)


def test_estimate_by_hand():
    point = estimate([1.0, 2.0, 3.0, 6.0])
    assert point.mean == 3.0
    assert point.se == pytest.approx(math.sqrt(14 / 3) / 2)
    assert math.isnan(estimate([0.5]).se)
    assert math.isnan(estimate([]).mean)
    assert estimate([1.0, math.inf]).mean == math.inf


def test_student_interval_agrees_with_scipy():
    x = [0.90, 0.91, 0.87, 0.93]
    interval = student_interval(x, 0.9)
    low, high = stats.t.interval(0.9, 3, loc=np.mean(x), scale=stats.sem(x))
    assert (interval.low, interval.high) == pytest.approx((low, high))
    assert student_interval([0.9]) is None


def test_welch_agrees_with_scipy():
    a, b = [1.0, 2.0, 4.0, 3.5], [0.5, 1.0, 0.7]
    ours = welch_contrast(a, b)
    theirs = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    interval = ours.interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((theirs.low, theirs.high))


def test_paired_matches_by_seed_and_not_by_order():
    a, b = {2: 0.9, 0: 0.7, 1: 0.8}, {0: 0.6, 1: 0.7, 2: 0.8, 9: 0.0}
    gap = paired_contrast(a, b)
    assert gap.mean == pytest.approx(0.1)
    assert gap.num == 3
    assert gap.interval(0.95).low == pytest.approx(0.1)  # the same gap in each seed
    with pytest.raises(ConfigError, match="seed"):
        paired_contrast({0: 1.0}, {1: 1.0})


def test_difference_is_paired_when_it_can_be():
    assert difference({0: 1.0, 1: 2.0}, {0: 0.5, 1: 1.0}).is_paired
    apart = difference({0: 1.0, 1: 2.0}, {2: 0.5, 3: 1.0})
    assert not apart.is_paired
    assert apart.interval is not None
    assert difference({0: 1.0}, {0: 0.5}).interval is None


def test_coverage_of_student_and_welch():
    rng, num = np.random.default_rng(1), 1500
    hits = [0, 0]
    for _ in range(num):
        a, b = rng.normal(2, 1, 5), rng.normal(1, 3, 4)
        hits[0] += 2.0 in student_interval(a)
        hits[1] += 1.0 in welch_contrast(a, b).interval(0.95)
    four_sigma = 4 * math.sqrt(0.95 * 0.05 / num)
    assert hits[0] / num == pytest.approx(0.95, abs=four_sigma)  # exact for normal data
    assert hits[1] / num == pytest.approx(0.95, abs=four_sigma + 0.01)  # approximate by design


def expected_best(val, test, *, larger_is_better=True):
    """The estimate of one seed, without its bounds."""
    rng = np.random.default_rng(0)
    seeds = [(val, test)]
    options = {"larger_is_better": larger_is_better, "num_resamples": 2}
    return expected_best_interval(seeds, rng, **options)[0]


@pytest.mark.parametrize("num", [1, 2, 7, 200])
def test_weights_are_hypergeometric(num):
    weights = best_of_weights(num)
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
    curve = expected_best(val, test, larger_is_better=up)
    for n in range(1, len(scores) + 1):
        picks = [
            test[min(subset, key=lambda i: (sign * val[i], i))]
            for subset in itertools.combinations(range(len(scores)), n)
        ]
        assert curve[n - 1] == pytest.approx(np.mean(picks), abs=1e-12)


def test_scores_that_do_not_match_are_refused():
    with pytest.raises(ConfigError, match="equally long"):
        expected_best([1.0], [1.0, 2.0])
    with pytest.raises(ConfigError, match="without NaN"):
        expected_best([math.nan], [1.0])


def test_interval_of_expected_best_averages_seeds_up_to_the_shortest():
    rng = np.random.default_rng(3)
    seeds = [(rng.random(n), rng.random(n)) for n in (6, 4)]
    mean, low, high = expected_best_interval(seeds, np.random.default_rng(0))
    exact = np.mean([expected_best(v, t)[:4] for v, t in seeds], axis=0)
    np.testing.assert_allclose(mean, exact)
    assert (low < mean).all()
    assert (mean < high).all()
    again = expected_best_interval(seeds, np.random.default_rng(0))
    np.testing.assert_array_equal(again[1], low)


def test_coverage_of_expected_best():
    # Trials uniform on (0, 1), validation equal to test: the best of n has mean n / (n + 1).
    rng, num = np.random.default_rng(4), 400
    n = np.array([1, 3, 10])
    hits = np.zeros(3)
    for _ in range(num):
        scores = rng.random(40)
        _, low, high = expected_best_interval([(scores, scores)], rng, num_resamples=300)
        hits += (low[n - 1] <= n / (n + 1)) & (n / (n + 1) <= high[n - 1])
    # Three points below the level: up to N / 4 the bootstrap is known to be that narrow.
    four_sigma = 4 * math.sqrt(0.95 * 0.05 / num)
    assert (hits / num > 0.95 - 0.03 - four_sigma).all()
    assert (hits / num < 0.95 + four_sigma).all()
