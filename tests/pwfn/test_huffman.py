import heapq
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.errors import CheckpointError
from tuneparts.pwfn import huffman


def literal_cost(counts: list[int]) -> int:
    """Bits of an optimal code without a bound on lengths: merge the two rarest, again and again."""
    heap = list(counts)
    heapq.heapify(heap)
    total = 0
    while len(heap) > 1:
        merged = heapq.heappop(heap) + heapq.heappop(heap)
        total += merged
        heapq.heappush(heap, merged)
    return total


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 200), min_size=2, max_size=60))
def test_lengths_are_optimal_and_a_complete_code(counts: list[int]) -> None:
    lengths = huffman.code_lengths(np.array(counts))
    assert sum(2.0 ** -int(length) for length in lengths) == 1
    assert int((lengths * np.array(counts)).sum()) == literal_cost(counts)


def test_lengths_are_bounded() -> None:
    fibonacci = [1, 1]
    while len(fibonacci) < 30:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    lengths = huffman.code_lengths(np.array(fibonacci))
    assert lengths.max() == huffman.MAX_LENGTH
    assert sum(2.0 ** -int(length) for length in lengths) == 1
    assert huffman.code_lengths(np.array([5])).tolist() == [0]
    most = huffman.code_lengths(np.ones(1 << 16, dtype=np.int64))
    assert set(most.tolist()) == {16}
    with pytest.raises(ValueError, match="distinct symbols"):
        huffman.code_lengths(np.ones((1 << 16) + 1, dtype=np.int64))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(1, 3000), st.integers(1, 300), st.integers(0, 10**6))
def test_round_trip_and_size(num: int, num_values: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = np.minimum(rng.geometric(0.1, size=num) - 1, num_values - 1)
    _, symbols, counts = np.unique(drawn, return_inverse=True, return_counts=True)
    lengths = huffman.code_lengths(counts)
    bits, payload = huffman.encode(symbols, lengths)
    assert len(bits) == math.ceil(num / huffman.BLOCK)
    assert bits.sum() == lengths[symbols].sum()
    np.testing.assert_array_equal(huffman.decode(payload, bits, lengths, num), symbols)
    shares = counts / num
    entropy = -(shares * np.log2(shares)).sum()
    assert entropy * num <= bits.sum() + 1e-6
    assert bits.sum() <= (entropy + 1) * num + 1e-6


@pytest.mark.parametrize("num", [1023, 1024, 1025, 2048])
def test_block_ends(num: int) -> None:
    symbols = np.arange(num) % 5
    lengths = huffman.code_lengths(np.bincount(symbols))
    bits, payload = huffman.encode(symbols, lengths)
    np.testing.assert_array_equal(huffman.decode(payload, bits, lengths, num), symbols)


def test_what_cannot_have_been_written_is_refused() -> None:
    symbols = np.arange(3000) % 5
    lengths = huffman.code_lengths(np.bincount(symbols))
    bits, payload = huffman.encode(symbols, lengths)
    broken = lengths.copy()
    broken[0] += 1
    for wrong in (broken, np.full_like(lengths, 200), np.zeros_like(lengths)):
        with pytest.raises(CheckpointError, match="complete prefix code"):
            huffman.decode(payload, bits, wrong, 3000)
    with pytest.raises(CheckpointError, match="do not fill"):
        huffman.decode(payload[:-1], bits, lengths, 3000)
    shifted = bits.copy()
    shifted[0] += 1
    shifted[1] -= 1
    with pytest.raises(CheckpointError, match="must end where the next begins"):
        huffman.decode(payload, shifted, lengths, 3000)
