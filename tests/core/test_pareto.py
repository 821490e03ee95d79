"""Fronts against a slow and obvious version of themselves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.core import pareto
from tuneparts.core.schema import lookup

WHOLE = st.integers(min_value=0, max_value=6)


def clouds(num_objectives: int):
    """Points on a small grid, so that ties and doubles occur."""
    return st.lists(st.tuples(*[WHOLE] * num_objectives), max_size=8)


def array(points, num_objectives: int):
    return np.asarray(points, np.float64).reshape(-1, num_objectives)


def dominates(a, b) -> bool:
    return all(x >= y for x, y in zip(a, b, strict=True)) and a != b


@pytest.mark.parametrize("m", [1, 2, 3])
def test_the_front_is_what_nothing_dominates(m: int) -> None:
    @settings(max_examples=60, deadline=None)
    @given(clouds(m))
    def check(points) -> None:
        expected = [not any(dominates(other, one) for other in points) for one in points]
        assert pareto.front(array(points, m)).tolist() == expected

    check()


def test_a_point_without_a_number_is_nowhere() -> None:
    points = np.array([[1.0, np.nan], [0.5, 0.5]])
    assert pareto.front(points).tolist() == [False, True]


def test_metrics_of_which_smaller_is_better_are_turned() -> None:
    metrics = [lookup("val/accuracy"), lookup("size/parameters")]
    assert pareto.oriented([[0.9, 10.0]], metrics).tolist() == [[0.9, -10.0]]
    assert pareto.oriented([], metrics).shape == (0, 2)
