import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.core.errors import ConfigError
from tuneparts.data.chunks import sizes

decimals = st.integers(0, 1000).map(lambda n: n / 1000)


@given(total=st.integers(0, 10_000), shares=st.lists(decimals, min_size=1, max_size=8).filter(any))
@settings(max_examples=100, deadline=None)
def test_shares_sum_to_the_total_and_stay_within_one_of_their_quota(total, shares):
    got = sizes(total, shares)
    assert sum(got) == total
    for share, size in zip(shares, got, strict=True):
        quota = total * share / math.fsum(shares)
        assert abs(size - quota) < 1 + 1e-6
        assert share > 0 or size == 0


@given(
    total=st.integers(0, 60),
    weights=st.lists(st.integers(0, 9), min_size=2, max_size=4).filter(any),
)
@settings(max_examples=60, deadline=None)
def test_equals_handing_out_the_remainder_one_at_a_time(total, weights):
    quotas = [Fraction(total * w, sum(weights)) for w in weights]
    expected = [int(quota) for quota in quotas]
    given_one = set()
    while sum(expected) < total:
        left = [i for i in range(len(weights)) if i not in given_one]
        best = max(left, key=lambda i: (quotas[i] - int(quotas[i]), -i))
        expected[best] += 1
        given_one.add(best)
    assert sizes(total, weights) == tuple(expected)


def test_ties_go_to_the_earlier_share():
    assert sizes(5, (0.1, 0.2, 0.7)) == (1, 1, 3)
    assert sizes(4, (1, 1, 1)) == (2, 1, 1)


def test_scale_of_the_proportions_does_not_matter():
    assert sizes(1297, (80, 10, 10)) == sizes(1297, (0.8, 0.1, 0.1)) == (1037, 130, 130)


@pytest.mark.parametrize("bad", [(), (0, 0), (1, -0.1), (float("nan"), 1), (float("inf"), 1)])
def test_proportions_that_mean_nothing_are_refused(bad):
    with pytest.raises(ConfigError, match="proportions must be"):
        sizes(10, bad)


def test_a_negative_total_is_refused():
    with pytest.raises(ConfigError, match="-1"):
        sizes(-1, (1,))
