"""Huffman codes of bounded length, written and read a block of symbols at a time.

Lengths are optimal under the bound (package-merge, Larmore & Hirschberg 1990) and codes canonical,
so that the lengths alone define them. All blocks are read in step with each other, one symbol of
each at a time, which makes reading a vector operation.

Shapes: N symbols, K distinct ones, J blocks.
"""

import numpy as np
import numpy.typing as npt

from tuneparts.errors import CheckpointError

MAX_LENGTH = 16
BLOCK = 1024
"""Symbols of a block; the last may have fewer."""

_INT = npt.NDArray[np.int64]
_BYTES = npt.NDArray[np.uint8]


def code_lengths(counts_K: _INT) -> _BYTES:
    """Bits of each symbol's code for these counts, at most 16; 0 for an only symbol."""
    num = len(counts_K)
    if not 0 < num <= 1 << MAX_LENGTH:
        raise ValueError(f"1 to {1 << MAX_LENGTH} distinct symbols have codes, but got {num}.")
    lengths_K = np.zeros(num, dtype=np.uint8)
    if num == 1:
        return lengths_K
    order_K = np.argsort(counts_K, kind="stable")
    singles_K = counts_K[order_K].astype(np.float64)
    levels: list[npt.NDArray[np.bool_]] = []
    packages = np.zeros(0)
    for _ in range(MAX_LENGTH):
        merged = np.concatenate([singles_K, packages])
        by_weight = np.argsort(merged, kind="stable")
        levels.append(by_weight < num)
        weights = merged[by_weight]
        packages = weights[: len(weights) // 2 * 2].reshape(-1, 2).sum(axis=1)
    num_chosen = 2 * num - 2
    for is_single in reversed(levels):
        num_singles = int(is_single[:num_chosen].sum())
        lengths_K[order_K[:num_singles]] += 1
        num_chosen = 2 * (num_chosen - num_singles)
    return lengths_K


def encode(symbols_N: _INT, lengths_K: _BYTES) -> tuple[npt.NDArray[np.uint32], _BYTES]:
    """The bits of each block (J,), and all bits of all blocks, packed into bytes."""
    codes_K, _ = _canonical(lengths_K)
    place = np.arange(MAX_LENGTH)
    bits = []
    for start in range(0, len(symbols_N), 1 << 16):
        part = symbols_N[start : start + (1 << 16)]
        length = lengths_K[part].astype(np.int64)[:, None]
        shift = np.maximum(length - 1 - place, 0)
        is_used = place < length
        bits.append((((codes_K[part][:, None] >> shift) & 1).astype(np.uint8))[is_used])
    ends = np.arange(0, len(symbols_N), BLOCK)
    per_block = np.add.reduceat(lengths_K[symbols_N].astype(np.int64), ends)
    return per_block.astype(np.uint32), np.packbits(np.concatenate(bits))


def decode(
    payload: _BYTES, bits_J: npt.NDArray[np.uint32], lengths_K: _BYTES, num_symbols: int
) -> _INT:
    """The symbols (N,) behind `encode`; refuses what `encode` cannot have written."""
    if len(lengths_K) == 1:
        return np.zeros(num_symbols, dtype=np.int64)
    if lengths_K.max() > MAX_LENGTH or lengths_K.min() < 1 or not _is_complete(lengths_K):
        raise CheckpointError("code lengths must form a complete prefix code, but these do not.")
    _, order_K = _canonical(lengths_K)
    width = int(lengths_K.max())
    table = np.repeat(order_K, 1 << (width - lengths_K[order_K].astype(np.int64)))
    ends_J = np.cumsum(bits_J.astype(np.int64))
    at_J = ends_J - bits_J
    if len(payload) != -(-int(ends_J[-1]) // 8):
        raise CheckpointError(f"blocks of {ends_J[-1]} bits do not fill {len(payload)} bytes.")
    padded = np.concatenate([payload, np.zeros(4, dtype=np.uint8)]).astype(np.int64)
    last = 8 * len(payload)
    symbols_JB = np.zeros((len(bits_J), BLOCK), dtype=np.int64)
    num_in_last = num_symbols - BLOCK * (len(bits_J) - 1)
    for step in range(min(BLOCK, num_symbols)):
        rows = slice(0, len(bits_J) if step < num_in_last else len(bits_J) - 1)
        at = np.minimum(at_J[rows], last)
        byte = at >> 3
        window = (padded[byte] << 16) | (padded[byte + 1] << 8) | padded[byte + 2]
        symbol = table[(window >> (24 - (at & 7) - width)) & ((1 << width) - 1)]
        symbols_JB[rows, step] = symbol
        at_J[rows] += lengths_K[symbol]
    if not np.array_equal(at_J, ends_J):
        raise CheckpointError("a block must end where the next begins, but one does not.")
    return symbols_JB.reshape(-1)[:num_symbols]


def _canonical(lengths_K: _BYTES) -> tuple[_INT, _INT]:
    """Codes (K,), and the symbols in the order of their codes (K,)."""
    order_K = np.argsort(lengths_K, kind="stable").astype(np.int64)
    # Each code is its predecessor plus one, at the finest resolution of all.
    steps = np.int64(1) << (MAX_LENGTH - lengths_K[order_K].astype(np.int64))
    starts = np.cumsum(steps) - steps
    codes_K = np.zeros(len(lengths_K), dtype=np.int64)
    codes_K[order_K] = starts >> (MAX_LENGTH - lengths_K[order_K].astype(np.int64))
    return codes_K, order_K


def _is_complete(lengths_K: _BYTES) -> bool:
    return int((np.int64(1) << (MAX_LENGTH - lengths_K.astype(np.int64))).sum()) == 1 << MAX_LENGTH
