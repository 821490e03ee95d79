import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError
from tuneparts.methods.partitioned._assign import nested_labels, order_of, random_labels
from tuneparts.methods.partitioned.config import MAX_PARTITIONS, _checked_proportions


def _generator(seed=0):
    return seeding.torch_generator(seed, "test")


@settings(max_examples=60, deadline=None)
@given(
    num=st.integers(0, 400),
    shares=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    seed=st.integers(0, 9),
)
def test_each_entry_has_one_owner_in_shares_within_one_of_the_quota(num, shares, seed):
    shares = [max(1, shares[0]), *shares[1:]]
    labels = random_labels(num, shares, generator=_generator(seed))
    assert labels.dtype == torch.uint8
    assert labels.shape == (num,)
    counts = [int((labels == k).sum()) for k in range(1, len(shares) + 1)]
    assert sum(counts) == num
    if num >= len(shares):
        for count, share in zip(counts, shares, strict=True):
            assert abs(count - num * share / sum(shares)) < 1
    else:
        assert counts[0] == num


def test_a_byte_names_every_partition_and_no_more():
    labels = random_labels(1000, [1] * MAX_PARTITIONS, generator=_generator())
    assert set(labels.tolist()) == set(range(1, 256))
    assert len(_checked_proportions([1] * MAX_PARTITIONS)) == MAX_PARTITIONS
    with pytest.raises(ConfigError, match=r"256 proportions: there are 1 to 255"):
        _checked_proportions([1] * (MAX_PARTITIONS + 1))


@pytest.mark.parametrize("bad", [(), (0, 1), (-1, 2), (1, float("nan")), (0, 0)])
def test_proportions_that_cannot_be_meant_are_refused(bad):
    with pytest.raises(ConfigError):
        _checked_proportions(bad)


def test_nested_labels_are_the_later_of_the_two_units():
    # The 6 x 5 example of the paper's Figure 4b.
    p_in = torch.tensor([1, 1, 1, 2, 3], dtype=torch.uint8)
    p_out = torch.tensor([1, 1, 1, 2, 2, 3], dtype=torch.uint8)
    labels = nested_labels(p_in, p_out)
    for i in range(6):
        for j in range(5):
            assert labels[i, j] == max(p_out[i], p_in[j])
    second = {(i + 1, j + 1) for i, j in (labels == 2).nonzero().tolist()}
    assert second == {(i, 4) for i in (1, 2, 3, 4, 5)} | {(i, j) for i in (4, 5) for j in (1, 2, 3)}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 5), max_size=60))
def test_order_lists_the_entries_of_each_partition(labels):
    order, offsets = order_of(torch.tensor(labels, dtype=torch.uint8), 5)
    assert order.dtype == torch.int32
    for k in range(1, 6):
        expected = [i for i, label in enumerate(labels) if label == k]
        assert order[offsets[k - 1] : offsets[k]].tolist() == expected
    assert offsets[-1] == len(labels)
