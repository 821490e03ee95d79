import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.core.errors import ConfigError
from tuneparts.data.chunks import stratified_order, subset, train_val

labelings = st.lists(st.integers(0, 4), min_size=5, max_size=120).map(np.array)


@given(labels=labelings, seed=st.integers(0, 5))
@settings(max_examples=40, deadline=None)
def test_an_order_holds_every_example_once(labels, seed):
    order = stratified_order(labels, np.random.default_rng(seed))
    assert sorted(order.tolist()) == list(range(len(labels)))


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
    order = stratified_order(labels, np.random.default_rng(1))
    counts = np.bincount(labels[order[start:end]], minlength=num_classes)
    # Between whole rounds of one example per class a stretch may begin and end mid-round.
    assert counts.max() - counts.min() <= 1 + (start % num_classes != 0)


def test_unequal_classes_keep_their_proportions():
    labels = np.repeat([0, 1, 2], [600, 300, 100])
    order = stratified_order(labels, np.random.default_rng(0))
    for length in (50, 100, 333, 700):
        counts = np.bincount(labels[order[:length]], minlength=3)
        np.testing.assert_allclose(counts, length * np.array([0.6, 0.3, 0.1]), atol=1.5)


def test_train_and_validation_are_disjoint_and_cover_everything():
    labels = np.arange(100) % 7
    train, val = train_val(labels, num_train=None, num_val=30, seed=0)
    assert len(val) == 30
    assert sorted([*train, *val]) == list(range(100))
    assert sorted(train) == train.tolist()


def test_subsets_are_nested_and_validation_does_not_move():
    labels = np.arange(1000) % 10
    small, val_small = train_val(labels, num_train=100, num_val=50, seed=3)
    large, val_large = train_val(labels, num_train=400, num_val=50, seed=3)
    assert set(small) < set(large)
    np.testing.assert_array_equal(val_small, val_large)


def test_another_seed_is_another_split():
    labels = np.arange(100) % 5
    assert set(train_val(labels, num_train=50, num_val=10, seed=0)[0]) != set(
        train_val(labels, num_train=50, num_val=10, seed=1)[0]
    )
    assert set(subset(labels, num=50, seed=0)) != set(subset(labels, num=50, seed=1))


def test_a_whole_test_part_stays_in_its_order():
    np.testing.assert_array_equal(subset(np.zeros(9, np.int64), num=None, seed=0), np.arange(9))


@pytest.mark.parametrize(("num_train", "num_val"), [(None, 10), (8, 3), (None, 11), (11, 0)])
def test_more_than_there_is_is_refused(num_train, num_val):
    with pytest.raises(ConfigError, match="num_train"):
        train_val(np.zeros(10, np.int64), num_train=num_train, num_val=num_val, seed=0)
    with pytest.raises(ConfigError, match="num_test <= 10"):
        subset(np.zeros(10, np.int64), num=11, seed=0)
