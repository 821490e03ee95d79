"""Chunks, stratified splits and whole-number shares."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.core.errors import ConfigError
from tuneparts.data.chunks import Chunks, _stratified_order, _subset, _train_val, sizes


@given(
    num=st.integers(50, 400),
    shares=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    zeros=st.integers(0, 2),
    seed=st.integers(0, 5),
)
@settings(max_examples=50, deadline=None)
def test_chunks_are_disjoint_and_cover_everything(num, shares, zeros, seed):
    chunks = Chunks(num, [*shares, *[0] * zeros], seed=seed)
    parts = [chunks.chunk(k) for k in range(1, len(chunks) + 1)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(num))
    assert tuple(map(len, parts)) == chunks.sizes
    for k in range(1, len(chunks) + 1):
        np.testing.assert_array_equal(chunks.cumulative(k), np.concatenate(parts[:k]))


def test_the_seed_alone_fixes_the_chunks():
    one, same, other = (Chunks(100, (0.8, 0.2), seed=s).chunk(2).tolist() for s in (3, 3, 4))
    assert one == same
    assert one != other


def test_chunks_are_random_and_not_in_order():
    first = Chunks(1000, (0.5, 0.5), seed=0).chunk(1)
    assert 400 < first.mean() < 600
    assert first.tolist() != sorted(first.tolist())


def test_index_arrays_cannot_be_changed():
    chunk = Chunks(10, (0.5, 0.5), seed=0).chunk(1)
    assert chunk.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        chunk[0] = 1


@pytest.mark.parametrize("bad", [(), (0, 1), (0.5, 0, 0.5), (-1, 2)])
def test_proportions_must_begin_positive_with_zeros_only_at_the_end(bad):
    with pytest.raises(ConfigError, match="zeros only at the end"):
        Chunks(10, bad, seed=0)


def test_an_empty_chunk_is_refused_by_number():
    with pytest.raises(ConfigError, match="chunk 2 of 2 is empty with 10 examples"):
        Chunks(10, (0.99, 0.01), seed=0)


@pytest.mark.parametrize("k", [0, 3, -1])
def test_chunks_are_numbered_from_one(k):
    chunks = Chunks(10, (0.5, 0.5), seed=0)
    with pytest.raises(ConfigError, match="numbered 1 to 2"):
        chunks.chunk(k)
    with pytest.raises(ConfigError, match="numbered 1 to 2"):
        chunks.cumulative(k)


@given(
    per_class=st.integers(1, 20),
    num_classes=st.integers(1, 6),
    cut=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
@settings(max_examples=60, deadline=None)
def test_equal_classes_differ_by_one_in_a_prefix_and_two_in_any_stretch(
    per_class, num_classes, cut
):
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(num_classes), per_class))
    start, end = sorted(round(c * len(labels)) for c in cut)
    order = _stratified_order(labels, np.random.default_rng(1))
    assert sorted(order.tolist()) == list(range(len(labels)))
    counts = np.bincount(labels[order[start:end]], minlength=num_classes)
    # Between whole rounds of one example per class a stretch may begin and end mid-round.
    assert counts.max() - counts.min() <= 1 + (start % num_classes != 0)


def test_unequal_classes_keep_their_proportions():
    labels = np.repeat([0, 1, 2], [600, 300, 100])
    order = _stratified_order(labels, np.random.default_rng(0))
    for length in (50, 100, 333, 700):
        counts = np.bincount(labels[order[:length]], minlength=3)
        np.testing.assert_allclose(counts, length * np.array([0.6, 0.3, 0.1]), atol=1.5)


def test_train_and_validation_are_disjoint_and_cover_everything():
    labels = np.arange(100) % 7
    train, val = _train_val(labels, num_train=None, num_val=30, seed=0)
    assert len(val) == 30
    assert sorted([*train, *val]) == list(range(100))
    assert sorted(train) == train.tolist()
    assert set(_train_val(labels, num_train=None, num_val=30, seed=1)[1]) != set(val)
    np.testing.assert_array_equal(_subset(labels, num=None, seed=0), np.arange(100))
    assert set(_subset(labels, num=50, seed=0)) != set(_subset(labels, num=50, seed=1))


def test_subsets_are_nested_and_validation_does_not_move():
    labels = np.arange(1000) % 10
    small, val_small = _train_val(labels, num_train=100, num_val=50, seed=3)
    large, val_large = _train_val(labels, num_train=400, num_val=50, seed=3)
    assert set(small) < set(large)
    np.testing.assert_array_equal(val_small, val_large)


@pytest.mark.parametrize(("num_train", "num_val"), [(None, 10), (8, 3), (None, 11), (11, 0)])
def test_more_than_there_is_is_refused(num_train, num_val):
    with pytest.raises(ConfigError, match="num_train"):
        _train_val(np.zeros(10, np.int64), num_train=num_train, num_val=num_val, seed=0)
    with pytest.raises(ConfigError, match="num_test <= 10"):
        _subset(np.zeros(10, np.int64), num=11, seed=0)


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
    assert sizes(1297, (80, 10, 10)) == sizes(1297, (0.8, 0.1, 0.1)) == (1037, 130, 130)


@pytest.mark.parametrize("bad", [(), (0, 0), (1, -0.1), (float("nan"), 1), (float("inf"), 1)])
def test_proportions_that_mean_nothing_are_refused(bad):
    with pytest.raises(ConfigError, match="must be finite"):
        sizes(10, bad)
