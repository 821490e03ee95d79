"""How small a fixed net is: the entropy of its weights, and a file of about that size.

The file holds a codebook, Huffman codes of the weights' indices, and the few tensors that are not
coded. It loads back to the same logits. Reading trusts nothing: no pickle, and no size in the file
is believed before it fits the net that the weights are meant for.

Layout: magic, SHA-256 of the rest, header length (4 bytes), header (JSON), then codebook
(float32), code lengths (uint8), bits of each block (uint32), packed codes, plain tensors in the
order of the header. All little-endian.

Code lengths are optimal under a bound (package-merge, Larmore & Hirschberg 1990), and codes are
canonical, so that the lengths alone define them.

Shapes: N weights or symbols, K distinct ones, J blocks.
"""

import hashlib
import json
import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from tuneparts import atomic
from tuneparts.errors import CheckpointError, ConfigError
from tuneparts.pwfn.aliases import refuse_aliases

MAX_LENGTH = 16
"""Most bits of a code; at most 2^16 distinct values can then be coded."""
BLOCK = 1024
"""Symbols of a block; the last may have fewer."""

_INT = npt.NDArray[np.int64]
_BYTES = npt.NDArray[np.uint8]
_MAGIC = b"tuneparts codebook 1\n"
_MAX_HEADER = 1 << 22
_DTYPES = {
    name: getattr(torch, name)
    for name in (
        "float32",
        "float64",
        "float16",
        "bfloat16",
        "int64",
        "int32",
        "int16",
        "int8",
        "uint8",
        "bool",
    )
}


@dataclass(frozen=True)
class Compressibility:
    """Distinct values, entropy and sparsity of a vector of weights.

    Entropies are in bits a weight, over the shares of the distinct values. Published numbers differ
    in whether zeros count (they do in PWFN and do not in WFN), so both are given.
    """

    num_unique: int
    """Distinct values, zero included."""
    entropy: float
    entropy_nonzero: float
    """Over the weights that are not zero; 0 if there are none."""
    sparsity: float
    """Share of zeros."""


def measure(values_N: Tensor) -> Compressibility:
    """Measure how compressible a vector of weights is; negative zero counts as zero.

    Example:
        >>> import torch
        >>> measure(torch.tensor([0.0, 0.5, 0.5, 0.25])).entropy
        1.5
    """
    values, counts = torch.unique(values_N.detach() + 0.0, return_counts=True)
    is_zero = values == 0
    return Compressibility(
        num_unique=len(values),
        entropy=entropy(counts),
        entropy_nonzero=entropy(counts[~is_zero]),
        sparsity=counts[is_zero].sum().item() / len(values_N),
    )


def entropy(counts_K: Tensor) -> float:
    """Compute the Shannon entropy in bits of the shares behind positive counts (K,)."""
    if len(counts_K) < 2:
        return 0.0
    shares = counts_K.double() / counts_K.sum()
    return float(-(shares * shares.log2()).sum())


def encode(net: nn.Module, names: Collection[str]) -> bytes:
    """Encode a net as the content of a file.

    Args:
        net: an ordinary net.
        names: of the parameters to code; they have at most 2^16 distinct values together.
            Everything else of the net's state is stored as it is.
    """
    coded, plain = _divided(net, names)
    _refuse_nan(plain)
    all_N = torch.cat([value.flatten() for value in coded.values()]).cpu() + 0.0
    codebook_K, index_N, counts_K = torch.unique(all_N, return_inverse=True, return_counts=True)
    if len(codebook_K) > 1 << MAX_LENGTH:
        raise ConfigError(
            f"at most {1 << MAX_LENGTH} distinct weights can be coded, but the net has "
            f"{len(codebook_K)}. Fix its weights first."
        )
    lengths_K = code_lengths(counts_K.numpy())
    bits_J, payload = huffman_encode(index_N.numpy(), lengths_K)
    header = {
        "coded": [[name, list(value.shape)] for name, value in coded.items()],
        "plain": [
            [name, list(value.shape), str(value.dtype).removeprefix("torch.")]
            for name, value in plain.items()
        ],
        "num_values": len(codebook_K),
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    body = b"".join(
        [
            len(text).to_bytes(4, "little"),
            text,
            codebook_K.numpy().astype("<f4").tobytes(),
            lengths_K.tobytes(),
            bits_J.astype("<u4").tobytes(),
            payload.tobytes(),
            *(_raw(value) for value in plain.values()),
        ]
    )
    return _MAGIC + hashlib.sha256(body).digest() + body


def check(net: nn.Module, names: Collection[str]) -> None:
    """Refuse a net that `encode` would refuse, but for the number of its distinct values."""
    _, plain = _divided(net, names)
    _refuse_given_nan(plain)


def check_buffers(net: nn.Module) -> None:
    """Refuse NaN in the buffers that a file would hold; the net need not know its shapes yet."""
    state = net.state_dict(keep_vars=True)
    _refuse_given_nan(
        {
            name: value
            for name, value in state.items()
            if isinstance(value, Tensor)
            and not isinstance(value, nn.Parameter)
            and not is_lazy(value)
        }
    )


def num_plain_bytes(net: nn.Module) -> int:
    """Count the bytes of a plain net's state without coding; a tied tensor counts once."""
    return sum(value.numel() * value.itemsize for value in _unique_state(net)[0].values())


def decode(content: bytes, net: nn.Module, *, source: str = "codebook file") -> None:
    """Load the content of a file into a plain net of the same architecture.

    Args:
        content: what `encode` returned.
        net: unchanged if the content is refused.
        source: name of the content in error messages.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> net, other = nn.Linear(4, 2), nn.Linear(4, 2)
        >>> _ = nn.init.constant_(net.weight, 0.5)
        >>> decode(encode(net, ["weight"]), other)
        >>> torch.equal(other.weight, net.weight)
        True
    """
    start = len(_MAGIC) + hashlib.sha256().digest_size
    body = content[start:]
    if content[:start] != _MAGIC + hashlib.sha256(body).digest():
        raise CheckpointError(
            f"a codebook file must be whole, but {source} ({len(content)} bytes) is truncated, "
            "damaged or something else. Write it again."
        )
    try:
        state = _parse(body, net)
    except CheckpointError as error:
        raise CheckpointError(f"{source} does not fit this net: {error}") from error
    _, again = _unique_state(net)
    net.load_state_dict(state | {name: state[first] for name, first in again.items()})


def write(path: Path, net: nn.Module, names: Collection[str]) -> int:
    """Write what `encode` makes to a file, whole or not at all; return its size in bytes."""
    content = encode(net, names)
    atomic.write_bytes(path, content)
    return len(content)


def is_file(path: Path) -> bool:
    """Whether a file begins as `write` begins one."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def read(path: Path, net: nn.Module) -> None:
    """Load a file that `write` wrote into a plain net of the same architecture."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"no codebook can be read at {path}: {error.strerror}.") from error
    decode(content, net, source=str(path))


@dataclass(frozen=True)
class _Header:
    coded: dict[str, tuple[int, ...]]
    plain: dict[str, tuple[tuple[int, ...], torch.dtype]]
    num_values: int

    @property
    def num_coded(self) -> int:
        return sum(math.prod(shape) for shape in self.coded.values())


def _parse(body: bytes, net: nn.Module) -> dict[str, Tensor]:
    length = int.from_bytes(body[:4], "little")
    if len(body) < 4 or length > min(_MAX_HEADER, len(body) - 4):
        raise CheckpointError(f"the header claims {length} bytes of {len(body)}.")
    header = _header(body[4 : 4 + length])
    _check_against(header, net)
    num, num_values = header.num_coded, header.num_values
    num_blocks = -(-num // BLOCK)
    plain_bytes = sum(math.prod(shape) * dtype.itemsize for shape, dtype in header.plain.values())
    payload_bytes = len(body) - 4 - length - 5 * num_values - 4 * num_blocks - plain_bytes
    if not 1 <= num_values <= min(num, 1 << MAX_LENGTH) or payload_bytes < 0:
        raise CheckpointError(
            f"{num_values} distinct values for {num} weights in {len(body)} bytes cannot be."
        )
    sections = _Sections(body, 4 + length)
    codebook_K = sections.take("<f4", num_values)
    lengths_K = sections.take("u1", num_values)
    bits_J = sections.take("<u4", num_blocks)
    payload = sections.take("u1", payload_bytes)
    if not np.isfinite(codebook_K).all():
        raise CheckpointError("the codebook holds values that are not finite.")
    index_N = huffman_decode(payload, bits_J, lengths_K, num)
    all_N = torch.from_numpy(codebook_K[index_N])
    state: dict[str, Tensor] = {}
    for name, shape in header.coded.items():
        size = math.prod(shape)
        state[name], all_N = all_N[:size].view(shape).clone(), all_N[size:]
    for name, (shape, dtype) in header.plain.items():
        stored = torch.int16 if dtype is torch.bfloat16 else dtype
        kind = np.dtype(str(stored).removeprefix("torch.")).newbyteorder("<")
        values = sections.take("u1" if dtype is torch.bool else kind.str, math.prod(shape))
        value = torch.from_numpy(values.astype(kind.newbyteorder("=")))
        state[name] = value.view(dtype).view(shape).clone()
    _refuse_nan({name: state[name] for name in header.plain})
    return state


def _refuse_nan(plain: dict[str, Tensor]) -> None:
    for name in _nans(plain):
        raise CheckpointError(f"`{name}` holds NaN. The net has diverged: train it anew.")


def _refuse_given_nan(state: dict[str, Tensor]) -> None:
    for name in _nans(state):
        raise ConfigError(
            f"a net must come without NaN, but its `{name}` holds some. Give it other values, or "
            "register it with `persistent=False` if the file can do without."
        )


def _nans(state: dict[str, Tensor]) -> list[str]:
    """Names of tensors that hold NaN; infinities are allowed, because masks are made of them."""
    return [
        name
        for name, value in state.items()
        if value.is_floating_point() and bool(torch.isnan(value).any())
    ]


def _header(text: bytes) -> _Header:
    try:
        raw: Any = json.loads(text)
        header = _Header(
            coded={str(name): _shape(shape) for name, shape in raw["coded"]},
            plain={
                str(name): (_shape(shape), _DTYPES[dtype]) for name, shape, dtype in raw["plain"]
            },
            num_values=int(raw["num_values"]),
        )
        if len(header.coded | header.plain) != len(raw["coded"]) + len(raw["plain"]):
            raise ValueError("a name stands twice")
        return header
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise CheckpointError(f"the header cannot be read ({type(error).__name__}).") from error


def _shape(raw: Any) -> tuple[int, ...]:
    if not all(type(side) is int and side >= 0 for side in raw):
        raise ValueError(f"a shape is a list of sizes, but got {raw!r}")
    return tuple(raw)


def _check_against(header: _Header, net: nn.Module) -> None:
    """Refuse names, shapes and types that are not the net's own."""
    # Before anything is allocated: the sizes in the file are then bounded by those of the net.
    claimed = {name: (shape, torch.float32) for name, shape in header.coded.items()} | header.plain
    state, _ = _unique_state(net)
    own = {name: (tuple(value.shape), value.dtype) for name, value in state.items()}
    wrong = sorted(
        name for name in claimed.keys() | own.keys() if claimed.get(name) != own.get(name)
    )
    if wrong:
        raise CheckpointError(
            f"tensors must have the names, shapes and types of the net's, but {len(wrong)} differ: "
            f"{', '.join(wrong[:5])}. Build the net that the file was written from."
        )


class _Sections:
    """Reader of consecutive arrays in the body, whose sizes were checked before."""

    def __init__(self, body: bytes, start: int) -> None:
        self._body = body
        self._at = start

    def take(self, dtype: str, count: int) -> npt.NDArray[Any]:
        values = np.frombuffer(self._body, dtype=dtype, count=count, offset=self._at)
        self._at += values.nbytes
        return values


def _unique_state(net: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Collect the tensors of a net's state once each, and further names with the first one's."""
    refuse_aliases(net)
    first: dict[int, str] = {}
    unique: dict[str, Tensor] = {}
    again: dict[str, str] = {}
    for name, value in net.state_dict(keep_vars=True).items():
        if not isinstance(value, Tensor):
            raise ConfigError(
                f"a codebook file holds tensors, but `{name}` of the net's state is a "
                f"{type(value).__name__}."
            )
        if id(value) in first:
            again[name] = first[id(value)]
        else:
            first[id(value)] = name
            unique[name] = value.detach()
    return unique, again


def _divided(net: nn.Module, names: Collection[str]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Divide the state into what is coded and what is not; refuses what a file cannot hold."""
    state, _ = _unique_state(net)
    missing = [name for name in names if name not in state]
    if missing:
        raise ConfigError(
            f"coded tensors must be part of the net's `state_dict`, but {', '.join(missing)} "
            "stand there under another name or not at all."
        )
    coded = {name: value for name, value in state.items() if name in names}
    if any(value.dtype != torch.float32 for value in coded.values()):
        raise ConfigError("a codebook holds float32 weights. Convert the net by `net.float()`.")
    plain = {name: value.cpu() for name, value in state.items() if name not in names}
    for name, value in plain.items():
        if value.dtype not in _DTYPES.values():
            raise ConfigError(
                f"`{name}` has type {value.dtype}, which a codebook file cannot hold."
            )
    return coded, plain


def _raw(value: Tensor) -> bytes:
    whole = value.contiguous()
    array = (whole.view(torch.int16) if whole.dtype is torch.bfloat16 else whole).numpy()
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def code_lengths(counts_K: _INT) -> _BYTES:
    """Compute the bits of each symbol's Huffman code, at most 16; 0 if there is one symbol only."""
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


def huffman_encode(symbols_N: _INT, lengths_K: _BYTES) -> tuple[npt.NDArray[np.uint32], _BYTES]:
    """Encode symbols; return the number of bits of each block (J,), and all bits in bytes."""
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


def huffman_decode(
    payload: _BYTES, bits_J: npt.NDArray[np.uint32], lengths_K: _BYTES, num_symbols: int
) -> _INT:
    """Decode the symbols (N,); refuse what `huffman_encode` cannot have written."""
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
    # One symbol of every block at a time: blocks are independent, so each step is one on vectors.
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
    """Compute canonical codes (K,), and the symbols in the order of their codes (K,)."""
    order_K = np.argsort(lengths_K, kind="stable").astype(np.int64)
    # Each code is its predecessor plus one, at the finest resolution of all.
    steps = np.int64(1) << (MAX_LENGTH - lengths_K[order_K].astype(np.int64))
    starts = np.cumsum(steps) - steps
    codes_K = np.zeros(len(lengths_K), dtype=np.int64)
    codes_K[order_K] = starts >> (MAX_LENGTH - lengths_K[order_K].astype(np.int64))
    return codes_K, order_K


def _is_complete(lengths_K: _BYTES) -> bool:
    return int((np.int64(1) << (MAX_LENGTH - lengths_K.astype(np.int64))).sum()) == 1 << MAX_LENGTH
