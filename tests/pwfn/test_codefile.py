import copy
import hashlib
import heapq
import json
import math
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tuneparts.errors import CheckpointError, ConfigError
from tuneparts.pwfn import codefile
from tuneparts.pwfn.codefile import measure
from tuneparts.pwfn.coverage import cover

MAGIC = b"tuneparts codebook 1\n"


def names_of(net: nn.Module) -> tuple[str, ...]:
    return cover(net).names


def encoded(net: nn.Module) -> bytes:
    return codefile.encode(net, names_of(net))


def rounded(net: nn.Module, unit: float) -> nn.Module:
    with torch.no_grad():
        for name in names_of(net):
            parameter = net.get_parameter(name)
            parameter.copy_((parameter / unit).round() * unit)
    return net


def quantised(net: nn.Sequential, x_BCHW: Tensor) -> nn.Module:
    net(x_BCHW)  # statistics of the norm that are not the initial ones
    return rounded(net, 1 / 64).eval()


@pytest.fixture
def gaussian(net: nn.Sequential, x_BCHW: Tensor) -> nn.Sequential:
    return quantised(net, x_BCHW)


def empty_like(gaussian: nn.Module) -> nn.Module:
    plain = copy.deepcopy(gaussian)
    with torch.no_grad():
        for value in plain.state_dict().values():
            value.fill_(7)
    return plain


def sealed(body: bytes) -> bytes:
    return MAGIC + hashlib.sha256(body).digest() + body


def body_of(content: bytes) -> bytes:
    return content[len(MAGIC) + 32 :]


def with_header(content: bytes, header: Any) -> bytes:
    body = body_of(content)
    (length,) = struct.unpack("<I", body[:4])
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return sealed(struct.pack("<I", len(text)) + text + body[4 + length :])


def header_of(content: bytes) -> dict[str, Any]:
    body = body_of(content)
    (length,) = struct.unpack("<I", body[:4])
    header: dict[str, Any] = json.loads(body[4 : 4 + length])
    return header


def test_a_written_file_loads_to_the_same_logits(
    gaussian: nn.Sequential, x_BCHW: Tensor, tmp_path: Path
) -> None:
    size = codefile.write(tmp_path / "a" / "net.code", gaussian, names_of(gaussian))
    assert (tmp_path / "a" / "net.code").stat().st_size == size
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["net.code"]
    plain = empty_like(gaussian)
    codefile.read(tmp_path / "a" / "net.code", plain)
    assert torch.equal(plain(x_BCHW), gaussian(x_BCHW))
    for name, value in gaussian.state_dict().items():
        assert torch.equal(plain.state_dict()[name], value), name


def test_the_file_is_as_small_as_its_entropy_allows() -> None:
    net = nn.Sequential(nn.Linear(300, 100, bias=False))
    values = torch.tensor([0.0, 0.5, -0.5, 0.25])
    drawn = torch.rand(100, 300, generator=torch.Generator().manual_seed(0)).square() * 4
    with torch.no_grad():
        net[0].weight.copy_(values[drawn.long()])
    size = measure(net[0].weight.flatten())
    least = size.entropy * 30000 / 8
    assert least < len(encoded(net)) < least * 1.1 + 500


def test_one_value_only(x_BCHW: Tensor) -> None:
    net = nn.Sequential(nn.Linear(3, 2))
    nn.init.zeros_(net[0].weight)
    nn.init.zeros_(net[0].bias)
    plain = empty_like(net)
    codefile.decode(encoded(net), plain)
    assert not any(value.any() for value in plain.state_dict().values())


def test_damage_is_refused_and_leaves_the_net_alone(gaussian: nn.Sequential) -> None:
    content = encoded(gaussian)
    plain = empty_like(gaussian)
    before = copy.deepcopy(plain.state_dict())
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    for wrong in (b"", content[:10], content[:-1], content + b"x", bytes(flipped), MAGIC):
        with pytest.raises(CheckpointError, match="must be whole"):
            codefile.decode(wrong, plain)
    assert all(torch.equal(value, before[name]) for name, value in plain.state_dict().items())


def hostile(header: dict[str, Any]) -> dict[str, Any]:
    name, shape = header["coded"][0]
    rest = header["coded"][1:]
    return {
        "huge shape": header | {"coded": [[name, [2**40, 2**40]], *rest]},
        "negative side": header | {"coded": [[name, [-1, *shape[1:]]], *rest]},
        "fraction": header | {"coded": [[name, [1.5, *shape[1:]]], *rest]},
        "other shape": header | {"coded": [[name, list(reversed(shape))], *rest]},
        "other name": header | {"coded": [["nothing", shape], *rest]},
        "missing": header | {"coded": rest},
        "twice": header | {"coded": [*header["coded"], header["coded"][0]]},
        "coded and plain": header | {"plain": [*header["plain"], [name, shape, "float32"]]},
        "type": header | {"plain": [[*header["plain"][0][:2], "float64"], *header["plain"][1:]]},
        "strange type": header | {"plain": [[*header["plain"][0][:2], "O"], *header["plain"][1:]]},
        "no values": header | {"num_values": 0},
        "too many values": header | {"num_values": 2**31},
        "wrong values": header | {"num_values": header["num_values"] + 1},
        "infinite values": b'{"coded":[],"plain":[],"num_values":1e999}',
        "list": [],
        "number": 3,
        "not json": b"\xff\xfe{",
        "deep": b"[" * 100_000,
        "no keys": {},
    }


TINY_HEADER = {"coded": [["a", [1]]], "plain": [["b", [], "float32"]], "num_values": 1}


@pytest.mark.parametrize("case", list(hostile(TINY_HEADER)))
def test_hostile_headers_are_refused(gaussian: nn.Sequential, case: str) -> None:
    content = encoded(gaussian)
    wrong = with_header(content, hostile(header_of(content))[case])
    with pytest.raises(CheckpointError):
        codefile.decode(wrong, empty_like(gaussian))


def test_a_header_longer_than_the_file_is_refused(gaussian: nn.Sequential) -> None:
    body = body_of(encoded(gaussian))
    for length in (2**32 - 1, len(body), len(body) - 3):
        with pytest.raises(CheckpointError, match="claims"):
            codefile.decode(sealed(struct.pack("<I", length) + body[4:]), empty_like(gaussian))
    with pytest.raises(CheckpointError, match="claims"):
        codefile.decode(sealed(b""), empty_like(gaussian))


def test_values_that_are_not_finite_are_refused(gaussian: nn.Sequential) -> None:
    body = bytearray(body_of(encoded(gaussian)))
    (length,) = struct.unpack("<I", body[:4])
    body[4 + length : 8 + length] = struct.pack("<f", float("nan"))
    with pytest.raises(CheckpointError, match="not finite"):
        codefile.decode(sealed(bytes(body)), empty_like(gaussian))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_any_sealed_change_loads_or_is_refused(data: st.DataObject) -> None:
    net = nn.Sequential(nn.Linear(6, 40), nn.BatchNorm1d(40))
    nn.init.normal_(net[0].weight, generator=torch.Generator().manual_seed(0))
    nn.init.zeros_(net[0].bias)
    rounded(net, 0.5)
    body = bytearray(body_of(encoded(net)))
    at = data.draw(st.integers(0, len(body) - 1))
    if data.draw(st.booleans()):
        body[at] = data.draw(st.integers(0, 255))
    else:
        del body[at:]
    plain = empty_like(net)
    try:
        codefile.decode(sealed(bytes(body)), plain)
    except CheckpointError:
        assert all((value == 7).all() for value in plain.state_dict().values())


def test_another_net_is_refused(gaussian: nn.Sequential) -> None:
    with pytest.raises(CheckpointError, match="Build the net that the file was written from"):
        codefile.decode(encoded(gaussian), nn.Sequential(nn.Linear(2, 2)))


def test_what_cannot_be_coded_is_refused(tmp_path: Path) -> None:
    many = nn.Sequential(nn.Linear(300, 300))
    with pytest.raises(ConfigError, match="Fix its weights first"):
        encoded(many)
    double = nn.Sequential(nn.Linear(2, 2)).double()
    with pytest.raises(ConfigError, match="float32"):
        codefile.encode(double, ["0.weight"])
    with pytest.raises(ConfigError, match="under another name or not at all"):
        codefile.encode(many, ["1.weight"])
    nn.init.constant_(many[0].bias, torch.nan)
    nn.init.zeros_(many[0].weight)
    with pytest.raises(CheckpointError, match=r"`0.bias` holds NaN"):
        codefile.encode(many, ["0.weight"])
    with pytest.raises(CheckpointError, match="no codebook can be read"):
        codefile.read(tmp_path / "nothing", double)


def literal_entropy(values: list[float]) -> float:
    counts = Counter(values).values()
    return -sum(n / len(values) * math.log2(n / len(values)) for n in counts)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from([0.0, -0.0, 0.5, -0.5, 0.25, 1.0]), min_size=1), st.randoms())
def test_against_counting(values: list[float], random: object) -> None:
    result = measure(torch.tensor(values))
    without = [value for value in values if value != 0]
    assert result.num_unique == len(set(values))
    assert result.entropy == pytest.approx(literal_entropy(values), abs=1e-12)
    nonzero = literal_entropy(without) if without else 0.0
    assert result.entropy_nonzero == pytest.approx(nonzero, abs=1e-12)
    assert result.sparsity == pytest.approx(1 - len(without) / len(values))
    assert measure(torch.tensor(values[::-1])) == result
    if len(without) == len(values):
        assert result.entropy == result.entropy_nonzero


@pytest.mark.parametrize("num", [1, 2, 8, 37])
def test_constant_and_uniform(num: int) -> None:
    assert measure(torch.full((num,), 0.5)).entropy == 0
    uniform = measure(torch.arange(1.0, num + 1).repeat(3))
    assert uniform.entropy == pytest.approx(math.log2(num))
    assert uniform.num_unique == num


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
    lengths = codefile.code_lengths(np.array(counts))
    assert sum(2.0 ** -int(length) for length in lengths) == 1
    assert int((lengths * np.array(counts)).sum()) == literal_cost(counts)


def test_lengths_are_bounded() -> None:
    fibonacci = [1, 1]
    while len(fibonacci) < 30:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    lengths = codefile.code_lengths(np.array(fibonacci))
    assert lengths.max() == codefile.MAX_LENGTH
    assert sum(2.0 ** -int(length) for length in lengths) == 1
    assert codefile.code_lengths(np.array([5])).tolist() == [0]
    most = codefile.code_lengths(np.ones(1 << 16, dtype=np.int64))
    assert set(most.tolist()) == {16}
    with pytest.raises(ValueError, match="distinct symbols"):
        codefile.code_lengths(np.ones((1 << 16) + 1, dtype=np.int64))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(1, 3000), st.integers(1, 300), st.integers(0, 10**6))
def test_round_trip_and_size(num: int, num_values: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = np.minimum(rng.geometric(0.1, size=num) - 1, num_values - 1)
    _, symbols, counts = np.unique(drawn, return_inverse=True, return_counts=True)
    lengths = codefile.code_lengths(counts)
    bits, payload = codefile.huffman_encode(symbols, lengths)
    assert len(bits) == math.ceil(num / codefile.BLOCK)
    assert bits.sum() == lengths[symbols].sum()
    np.testing.assert_array_equal(codefile.huffman_decode(payload, bits, lengths, num), symbols)
    shares = counts / num
    entropy = -(shares * np.log2(shares)).sum()
    assert entropy * num <= bits.sum() + 1e-6
    assert bits.sum() <= (entropy + 1) * num + 1e-6


@pytest.mark.parametrize("num", [1023, 1024, 1025, 2048])
def test_block_ends(num: int) -> None:
    symbols = np.arange(num) % 5
    lengths = codefile.code_lengths(np.bincount(symbols))
    bits, payload = codefile.huffman_encode(symbols, lengths)
    np.testing.assert_array_equal(codefile.huffman_decode(payload, bits, lengths, num), symbols)


def test_what_cannot_have_been_written_is_refused() -> None:
    symbols = np.arange(3000) % 5
    lengths = codefile.code_lengths(np.bincount(symbols))
    bits, payload = codefile.huffman_encode(symbols, lengths)
    broken = lengths.copy()
    broken[0] += 1
    for wrong in (broken, np.full_like(lengths, 200), np.zeros_like(lengths)):
        with pytest.raises(CheckpointError, match="complete prefix code"):
            codefile.huffman_decode(payload, bits, wrong, 3000)
    with pytest.raises(CheckpointError, match="do not fill"):
        codefile.huffman_decode(payload[:-1], bits, lengths, 3000)
    shifted = bits.copy()
    shifted[0] += 1
    shifted[1] -= 1
    with pytest.raises(CheckpointError, match="must end where the next begins"):
        codefile.huffman_decode(payload, shifted, lengths, 3000)


class Shared(nn.Module):
    """A tie that stays in float, a layer under two names, and buffers of small types."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(3, 4), nn.Linear(4, 3, bias=False)
        self.head.weight = self.embed.weight
        self.one = nn.Linear(4, 4)
        self.two = self.one
        self.register_buffer("mask", torch.tensor([True, False]))
        self.register_buffer("small", torch.tensor([0.5, -1.5], dtype=torch.float16))
        self.register_buffer("brain", torch.tensor([0.5, -1.5], dtype=torch.bfloat16))


def test_tied_tensors_are_stored_once_and_small_types_are_kept() -> None:
    net, other = Shared(), Shared()
    codefile.check(net, ["one.weight", "one.bias"])
    with torch.no_grad():
        other.mask.fill_(False)
        other.small.fill_(0)
        other.brain.fill_(0)
    codefile.decode(codefile.encode(net, ["one.weight", "one.bias"]), other)
    assert other.head.weight is other.embed.weight
    assert torch.equal(other.embed.weight, net.embed.weight)
    assert torch.equal(other.two.weight, net.one.weight)
    assert torch.equal(other.mask, net.mask)
    assert torch.equal(other.small, net.small)
    assert torch.equal(other.brain, net.brain)
    assert codefile.num_plain_bytes(other) == 4 * (12 + 16 + 4) + 2 + 4 + 4
    loose = Shared()
    loose.head = nn.Linear(4, 3, bias=False)
    with pytest.raises(CheckpointError, match=r"1 differ: head.weight"):
        codefile.decode(encoded(net), loose)


def test_a_coded_tie_stays_tied() -> None:
    net, other = Shared(), Shared()
    codefile.decode(encoded(net), other)
    assert other.head.weight is other.embed.weight
    assert torch.equal(other.head.weight, net.head.weight)


def test_nan_in_a_tensor_that_is_not_coded_is_refused_and_infinity_is_not() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    other = copy.deepcopy(net)
    net[1].running_mean.fill_(float("inf"))
    content = encoded(net)
    codefile.decode(content, other)
    assert torch.isinf(other[1].running_mean).all()
    body = body_of(content).replace(struct.pack("<f", float("inf")), struct.pack("<f", np.nan))
    with pytest.raises(CheckpointError, match=r"`1.running_mean` holds NaN"):
        codefile.decode(sealed(body), other)


def test_nan_is_refused_before_training_by_what_checks_a_net() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    codefile.check(net, ["0.weight", "0.bias"])
    net[1].running_mean.fill_(torch.nan)
    with pytest.raises(ConfigError, match=r"without NaN, but its `1.running_mean`"):
        codefile.check(net, ["0.weight", "0.bias"])


def test_states_that_a_file_cannot_hold_are_refused_before_training() -> None:
    class Noted(nn.Linear):
        def get_extra_state(self) -> dict[str, int]:
            return {"version": 1}

    net = nn.Sequential(nn.Linear(2, 2), Noted(2, 2))
    with pytest.raises(ConfigError, match=r"`1._extra_state` of the net's state is a dict"):
        codefile.check(net, ["0.weight"])
