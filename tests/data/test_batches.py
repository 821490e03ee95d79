import io

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.core.errors import CheckpointError, ConfigError
from tuneparts.data.batches import Batches


def _through_bytes(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


@given(num=st.integers(1, 50), size=st.integers(1, 50), seed=st.integers(0, 9))
@settings(max_examples=50, deadline=None)
def test_an_epoch_without_replacement_holds_no_example_twice(num, size, seed):
    size = min(size, num)
    batches = Batches(num, size, seed=seed, replacement=False)
    epoch = torch.cat([batches.next() for _ in range(num // size)])
    assert len(epoch) == num // size * size
    assert len(set(epoch.tolist())) == len(epoch)
    assert set(epoch.tolist()) <= set(range(num))


def test_epochs_differ_and_what_is_dropped_differs():
    batches = Batches(10, 4, seed=0, replacement=False)
    epochs = [frozenset(torch.cat([batches.next(), batches.next()]).tolist()) for _ in range(20)]
    assert len(set(epochs)) > 5


def test_with_replacement_is_uniform():
    batches = Batches(5, 1000, seed=0, replacement=True)
    counts = torch.bincount(torch.cat([batches.next() for _ in range(20)]), minlength=5)
    expected = 20_000 / 5
    # Chi-squared with 4 degrees of freedom exceeds 23.5 once in 10,000 seeds.
    assert ((counts - expected) ** 2 / expected).sum() < 23.5


def test_with_replacement_a_batch_may_exceed_the_data():
    assert Batches(3, 10, seed=0, replacement=True).next().shape == (10,)


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("before", [0, 1, 3, 7])
def test_resumes_bit_for_bit(replacement, before):
    batches = Batches(10, 3, seed=5, replacement=replacement)
    for _ in range(before):
        batches.next()
    state = _through_bytes(batches.state_dict())
    expected = [batches.next().tolist() for _ in range(9)]
    resumed = Batches(10, 3, seed=99, replacement=replacement)
    resumed.load_state_dict(state)
    assert [resumed.next().tolist() for _ in range(9)] == expected


@pytest.mark.parametrize("replacement", [True, False])
def test_a_state_is_a_snapshot(replacement):
    batches = Batches(10, 3, seed=5, replacement=replacement)
    state = batches.state_dict()
    first = [batches.next().tolist() for _ in range(5)]
    batches.load_state_dict(state)
    assert [batches.next().tolist() for _ in range(5)] == first


def test_a_batch_is_not_a_view_of_the_stream():
    batches = Batches(10, 10, seed=0, replacement=False)
    state = batches.state_dict()
    batch = batches.next()
    kept = batch.clone()
    batch.zero_()
    batches.load_state_dict(state)
    assert torch.equal(batches.next(), kept)


def test_another_batch_size_continues_the_same_epoch():
    batches = Batches(12, 3, seed=1, replacement=False)
    seen = batches.next().tolist()
    wider = Batches(12, 9, seed=2, replacement=False)
    wider.load_state_dict(batches.state_dict())
    assert sorted(seen + wider.next().tolist()) == list(range(12))


def test_streams_of_different_name_or_seed_differ():
    def first(**kwargs):
        return Batches(1000, 8, replacement=True, **kwargs).next().tolist()

    assert first(seed=0) == first(seed=0)
    assert first(seed=0) != first(seed=1)
    assert first(seed=0) != first(seed=0, stream=("batches", 2))


def test_global_generators_are_untouched():
    before = torch.get_rng_state()
    Batches(10, 3, seed=0, replacement=False).next()
    assert torch.equal(torch.get_rng_state(), before)


def test_a_state_of_other_data_is_refused():
    state = Batches(10, 3, seed=0, replacement=False).state_dict()
    with pytest.raises(CheckpointError, match="num_examples = 10"):
        Batches(11, 3, seed=0, replacement=False).load_state_dict(state)
    with pytest.raises(CheckpointError, match="replacement = False"):
        Batches(10, 3, seed=0, replacement=True).load_state_dict(state)


def test_sizes_that_cannot_be_served_are_refused():
    with pytest.raises(ConfigError, match=r"`batch_size` = 11.* 10 examples"):
        Batches(10, 11, seed=0, replacement=False)
    with pytest.raises(ConfigError, match="0 examples"):
        Batches(0, 1, seed=0, replacement=True)
    with pytest.raises(ConfigError, match="`batch_size` = 0"):
        Batches(10, 0, seed=0, replacement=True)
