import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.superweights.grouping import group, numbered


def queue_reference(similarity: np.ndarray, threshold: float) -> list[set[int]]:
    """Algorithm 1 as it is written: pairs by descending similarity, groups as sets."""
    groups = [{i} for i in range(len(similarity))]
    pairs = [(similarity[i, j], i, j) for i in range(len(similarity)) for j in range(i)]
    for value, i, j in sorted(pairs, reverse=True):
        if value > threshold:
            one = next(g for g in groups if i in g)
            other = next(g for g in groups if j in g)
            if one is not other:
                groups.remove(other)
                one |= other
    return groups


def symmetric(rng: np.random.Generator, num: int) -> np.ndarray:
    matrix = rng.uniform(-1, 1, (num, num))
    return np.tril(matrix, -1) + np.tril(matrix, -1).T + np.eye(num)


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 9), st.floats(-1.2, 1.2), st.integers(0, 10**6))
def test_groups_are_those_of_the_queue(num, threshold, seed) -> None:
    similarity = symmetric(np.random.default_rng(seed), num)
    labels = group(similarity, threshold)
    ours = {frozenset(np.flatnonzero(np.array(labels) == k)) for k in set(labels)}
    assert ours == {frozenset(g) for g in queue_reference(similarity, threshold)}


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 8), st.integers(0, 10**6))
def test_the_order_of_items_does_not_matter(num, seed) -> None:
    rng = np.random.default_rng(seed)
    similarity, order = symmetric(rng, num), rng.permutation(num)
    labels = np.array(group(similarity, 0.3))
    assert numbered(labels[order].tolist()) == group(similarity[np.ix_(order, order)], 0.3)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 8), st.integers(0, 10**6))
def test_a_larger_threshold_refines(num, seed) -> None:
    similarity = symmetric(np.random.default_rng(seed), num)
    coarse, fine = group(similarity, 0.0), group(similarity, 0.5)
    assert len(set(zip(coarse, fine, strict=True))) == len(set(fine))


def test_chains_of_similar_pairs_make_one_group() -> None:
    similarity = np.full((4, 4), -0.5)
    for i, j, value in ((0, 1, 0.9), (2, 3, 0.8), (1, 2, 0.5)):
        similarity[i, j] = similarity[j, i] = value
    assert group(similarity, 0.1) == [0, 0, 0, 0]


@pytest.mark.parametrize(("threshold", "labels"), [(-1.1, [0, 0, 0]), (1.0, [0, 1, 2])])
def test_extremes(threshold: float, labels: list[int]) -> None:
    assert group(symmetric(np.random.default_rng(0), 3), threshold) == labels


def test_one_item_equality_one_direction_and_not_a_number() -> None:
    assert group(np.ones((1, 1)), 0.0) == [0]
    equal = np.array([[1.0, 0.1], [0.1, 1.0]])
    assert group(equal, 0.1) == [0, 1]
    assert group(np.array([[1.0, 0.0], [0.4, 1.0]]), 0.1) == [0, 0]
    assert group(np.full((2, 2), np.nan), -2.0) == [0, 1]
