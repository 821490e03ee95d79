"""Fronts and hypervolumes against slow and obvious versions of themselves."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts import pareto
from tuneparts.schema import lookup

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


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_the_hypervolume_counts_the_cells_that_some_point_dominates(m: int) -> None:
    @settings(max_examples=40, deadline=None)
    @given(clouds(m), st.tuples(*[st.integers(min_value=0, max_value=2)] * m))
    def check(points, reference) -> None:
        cells = itertools.product(*(range(low, 6) for low in reference))
        expected = sum(
            any(all(x > c for x, c in zip(one, cell, strict=True)) for one in points)
            for cell in cells
        )
        assert pareto.hypervolume(array(points, m), reference) == pytest.approx(expected)

    check()


def test_the_hypervolume_is_that_of_random_draws_below_the_points() -> None:
    rng = np.random.default_rng(0)
    points, draws = rng.random((20, 3)), rng.random((100_000, 3))
    share = np.mean((draws[:, None] <= points[None]).all(axis=2).any(axis=1))
    assert pareto.hypervolume(points, np.zeros(3)) == pytest.approx(share, abs=0.01)


def test_a_point_without_a_number_is_nowhere() -> None:
    points = np.array([[1.0, np.nan], [0.5, 0.5]])
    assert pareto.front(points).tolist() == [False, True]
    assert pareto.hypervolume(points, [0, 0]) == 0.25


def test_metrics_of_which_smaller_is_better_are_turned() -> None:
    metrics = [lookup("val/accuracy"), lookup("size/parameters")]
    assert pareto.oriented([[0.9, 10.0]], metrics).tolist() == [[0.9, -10.0]]
    assert pareto.oriented([], metrics).shape == (0, 2)
