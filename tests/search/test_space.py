import numpy as np
import pytest
from scipy import stats

from tuneparts.search.space import Choice, Uniform


def test_uniform_draws_are_uniform() -> None:
    rng = np.random.default_rng(0)
    draws = [Uniform(low=2.0, high=5.0).sample(rng) for _ in range(500)]
    assert stats.kstest(draws, stats.uniform(2, 3).cdf).pvalue > 0.001


def test_log_uniform_draws_are_uniform_in_their_logarithm() -> None:
    rng = np.random.default_rng(0)
    draws = np.log10([Uniform(low=1e-4, high=1.0, log=True).sample(rng) for _ in range(500)])
    assert stats.kstest(draws, stats.uniform(-4, 4).cdf).pvalue > 0.001


def test_choices_are_equally_likely() -> None:
    rng = np.random.default_rng(0)
    draws = [Choice(options=("a", "b", "c")).sample(rng) for _ in range(600)]
    assert stats.chisquare([draws.count(o) for o in "abc"]).pvalue > 0.001


@pytest.mark.parametrize("values", [(1, 1), (2, 1)])
def test_an_empty_range_is_refused(values) -> None:
    with pytest.raises(ValueError, match="`low < high` must hold"):
        Uniform(low=values[0], high=values[1])


def test_a_logarithm_needs_positive_numbers() -> None:
    with pytest.raises(ValueError, match="`low > 0` must hold"):
        Uniform(low=0, high=1, log=True)
