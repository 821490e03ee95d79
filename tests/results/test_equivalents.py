"""What one run is worth in trials: known truths, and how often the interval holds them."""

import numpy as np
import pytest

from tuneparts.results.equivalents import curve, worth


def test_the_curve_is_the_mean_over_all_subsets() -> None:
    import itertools

    val, test = [0.3, 0.9, 0.5, 0.1], [0.2, 0.7, 0.8, 0.1]
    for n, found in enumerate(curve(val, test), start=1):
        best = [
            test[max(chosen, key=lambda i: val[i])]
            for chosen in itertools.combinations(range(4), n)
        ]
        assert found == pytest.approx(np.mean(best))


def test_an_obvious_number() -> None:
    trials = {seed: ([0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4]) for seed in range(4)}
    found = worth(trials, dict.fromkeys(range(4), 0.33))  # E of best of 2 is 1/3
    assert found is not None
    assert (found.trials, found.low, found.high, found.num) == (2, 2, 2, 4)
    assert (found.says, found.interval) == ("2", "95 % interval 2 to 2")
    never = worth(trials, dict.fromkeys(range(4), 0.5))
    assert never is not None
    assert (never.trials, never.low, never.high) == (None, None, None)
    assert "more than 4" in never.says


def test_two_replicates_give_no_interval_and_none_in_common_nothing() -> None:
    trials = {seed: ([0.1, 0.2], [0.1, 0.2]) for seed in range(2)}
    found = worth(trials, {0: 0.15, 1: 0.15})
    assert found is not None
    assert found.interval == ""
    assert worth(trials, {7: 0.1}) is None


def test_smaller_may_be_better() -> None:
    trials = {seed: ([0.4, 0.3, 0.2], [0.4, 0.3, 0.2]) for seed in range(3)}
    found = worth(
        trials, dict.fromkeys(range(3), 0.24), selects_larger=False, larger_is_better=False
    )
    assert found is not None
    assert found.trials == 2  # 0.7 / 3 is below 0.24


def expected_best(num: int, noise: float) -> np.ndarray:
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
    means = expected_best(num, noise)
    target = float(means[5] - 0.01)
    true = int(np.flatnonzero(means >= target)[0]) + 1
    for _ in range(repeats):
        shift = 0.1 * rng.standard_normal(num_seeds)  # what a replicate's data does to all arms
        trials, scores = {}, {}
        for seed in range(num_seeds):
            test = rng.random(num)
            trials[seed] = test + noise * rng.standard_normal(num), test + shift[seed]
            scores[seed] = target + shift[seed] + 0.02 * rng.standard_normal()
        found = worth(trials, scores)
        assert found is not None
        low = num + 1 if found.low is None else found.low
        high = num + 1 if found.high is None else found.high
        hits += low <= true <= high
    # 400 simulations of 95 % have an error of 1.1 %.
    assert hits / repeats >= 0.92
