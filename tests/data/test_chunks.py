import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.core.errors import ConfigError
from tuneparts.data.chunks import Chunks


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
