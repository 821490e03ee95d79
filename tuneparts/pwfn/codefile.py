"""A fixed net as a small file: a codebook, entropy-coded indices, and the few plain tensors.

The file is what a compressed size is measured on, and it loads back to the same logits. Reading
trusts nothing: no pickle, and no size in the file is believed before it fits the net that the
weights are meant for.

Layout: magic, SHA-256 of the rest, header length (4 bytes), header (JSON), then codebook
(float32), code lengths (uint8), bits of each block (uint32), packed codes, plain tensors in the
order of the header. All little-endian.
"""

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tuneparts import atomic
from tuneparts.errors import CheckpointError, ConfigError
from tuneparts.pwfn import huffman
from tuneparts.pwfn.conversion import tensors

_MAGIC = b"tuneparts codebook 1\n"
_MAX_HEADER = 1 << 22
_DTYPES = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64}


def encode(net: nn.Module) -> bytes:
    """The file of a net with Gaussian layers, at its means.

    Weights need not all be fixed, but at most 2^16 distinct values can be coded.
    """
    coded = {name: tensor.mu.detach() for name, tensor in tensors(net).items()}
    if any(value.dtype != torch.float32 for value in coded.values()):
        raise ConfigError("a codebook holds float32 weights. Convert the net by `net.float()`.")
    plain = _plain_tensors(net)
    all_N = torch.cat([value.flatten() for value in coded.values()]).cpu() + 0.0
    codebook_K, index_N, counts_K = torch.unique(all_N, return_inverse=True, return_counts=True)
    if len(codebook_K) > 1 << huffman.MAX_LENGTH:
        raise ConfigError(
            f"at most {1 << huffman.MAX_LENGTH} distinct weights can be coded, but the net has "
            f"{len(codebook_K)}. Fix its weights first."
        )
    lengths_K = huffman.code_lengths(counts_K.numpy())
    bits_J, payload = huffman.encode(index_N.numpy(), lengths_K)
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


def decode(content: bytes, net: nn.Module, *, source: str = "codebook file") -> None:
    """Load a file into a plain net of the same architecture; the net is unchanged if refused."""
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
    net.load_state_dict(state)


def write(path: Path, net: nn.Module) -> int:
    """Write the file of a net, whole or not at all; its size in bytes."""
    content = encode(net)
    atomic.write_bytes(path, content)
    return len(content)


def read(path: Path, net: nn.Module) -> None:
    """Load what `write` wrote into a plain net of the same architecture."""
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
    num_blocks = -(-num // huffman.BLOCK)
    plain_bytes = sum(math.prod(shape) * dtype.itemsize for shape, dtype in header.plain.values())
    payload_bytes = len(body) - 4 - length - 5 * num_values - 4 * num_blocks - plain_bytes
    if not 1 <= num_values <= min(num, 1 << huffman.MAX_LENGTH) or payload_bytes < 0:
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
    index_N = huffman.decode(payload, bits_J, lengths_K, num)
    all_N = torch.from_numpy(codebook_K[index_N])
    state: dict[str, Tensor] = {}
    for name, shape in header.coded.items():
        size = math.prod(shape)
        state[name], all_N = all_N[:size].view(shape).clone(), all_N[size:]
    for name, (shape, dtype) in header.plain.items():
        kind = np.dtype(str(dtype).removeprefix("torch.")).newbyteorder("<")
        values = sections.take(kind.str, math.prod(shape))
        state[name] = torch.from_numpy(values.astype(kind.newbyteorder("="))).view(shape).clone()
    return state


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
    """Names, shapes and types must be the net's own: what is allocated next is bounded by it."""
    claimed = {name: (shape, torch.float32) for name, shape in header.coded.items()} | header.plain
    own = {name: (tuple(value.shape), value.dtype) for name, value in net.state_dict().items()}
    wrong = sorted(
        name for name in claimed.keys() | own.keys() if claimed.get(name) != own.get(name)
    )
    if wrong:
        raise CheckpointError(
            f"tensors must have the names, shapes and types of the net's, but {len(wrong)} differ: "
            f"{', '.join(wrong[:5])}. Build the net that the file was written from."
        )


class _Sections:
    """Consecutive arrays in the body; sizes were checked before."""

    def __init__(self, body: bytes, start: int) -> None:
        self._body = body
        self._at = start

    def take(self, dtype: str, count: int) -> npt.NDArray[Any]:
        values = np.frombuffer(self._body, dtype=dtype, count=count, offset=self._at)
        self._at += values.nbytes
        return values


def _plain_tensors(net: nn.Module) -> dict[str, Tensor]:
    """What is not coded: everything in the state that no Gaussian tensor owns."""
    owned = tuple(f"{name}." for name in tensors(net))
    plain = {
        name: value.detach().cpu()
        for name, value in net.state_dict().items()
        if not name.startswith(owned)
    }
    for name, value in plain.items():
        if value.dtype not in _DTYPES.values():
            raise ConfigError(
                f"`{name}` has type {value.dtype}, which a codebook file cannot hold."
            )
    return plain


def _raw(value: Tensor) -> bytes:
    array = value.contiguous().numpy()
    return array.astype(array.dtype.newbyteorder("<")).tobytes()
