import copy
import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tuneparts.errors import CheckpointError, ConfigError
from tuneparts.pwfn import codefile, fixing
from tuneparts.pwfn.compression import measure
from tuneparts.pwfn.conversion import to_gaussian, to_plain

MAGIC = b"tuneparts codebook 1\n"


def quantised(net: nn.Sequential, x_BCHW: Tensor) -> nn.Sequential:
    net(x_BCHW)  # statistics of the norm that are not the initial ones
    to_gaussian(net)
    mu_N = (fixing.means(net) * 64).round() / 64
    fixing.write(net, mu_N, torch.zeros_like(mu_N), torch.ones_like(mu_N, dtype=torch.bool))
    return net.eval()


@pytest.fixture
def gaussian(net: nn.Sequential, x_BCHW: Tensor) -> nn.Sequential:
    return quantised(net, x_BCHW)


def empty_like(gaussian: nn.Module) -> nn.Module:
    plain = to_plain(gaussian)
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
    size = codefile.write(tmp_path / "a" / "net.code", gaussian)
    assert (tmp_path / "a" / "net.code").stat().st_size == size
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["net.code"]
    plain = empty_like(gaussian)
    codefile.read(tmp_path / "a" / "net.code", plain)
    assert torch.equal(plain(x_BCHW), gaussian(x_BCHW))
    for name, value in to_plain(gaussian).state_dict().items():
        assert torch.equal(plain.state_dict()[name], value), name


def test_the_file_is_as_small_as_its_entropy_allows() -> None:
    net = nn.Sequential(nn.Linear(300, 100, bias=False))
    values = torch.tensor([0.0, 0.5, -0.5, 0.25])
    drawn = torch.rand(100, 300, generator=torch.Generator().manual_seed(0)).square() * 4
    with torch.no_grad():
        net[0].weight.copy_(values[drawn.long()])
    to_gaussian(net)
    size = measure(fixing.means(net))
    least = size.entropy * 30000 / 8
    assert least < len(codefile.encode(net)) < least * 1.1 + 500


def test_one_value_only(x_BCHW: Tensor) -> None:
    net = nn.Sequential(nn.Linear(3, 2))
    nn.init.zeros_(net[0].weight)
    nn.init.zeros_(net[0].bias)
    to_gaussian(net)
    plain = empty_like(net)
    codefile.decode(codefile.encode(net), plain)
    assert not any(value.any() for value in plain.state_dict().values())


def test_damage_is_refused_and_leaves_the_net_alone(gaussian: nn.Sequential) -> None:
    content = codefile.encode(gaussian)
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
    content = codefile.encode(gaussian)
    wrong = with_header(content, hostile(header_of(content))[case])
    with pytest.raises(CheckpointError):
        codefile.decode(wrong, empty_like(gaussian))


def test_a_header_longer_than_the_file_is_refused(gaussian: nn.Sequential) -> None:
    body = body_of(codefile.encode(gaussian))
    for length in (2**32 - 1, len(body), len(body) - 3):
        with pytest.raises(CheckpointError, match="claims"):
            codefile.decode(sealed(struct.pack("<I", length) + body[4:]), empty_like(gaussian))
    with pytest.raises(CheckpointError, match="claims"):
        codefile.decode(sealed(b""), empty_like(gaussian))


def test_values_that_are_not_finite_are_refused(gaussian: nn.Sequential) -> None:
    body = bytearray(body_of(codefile.encode(gaussian)))
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
    to_gaussian(net)
    mu_N = (fixing.means(net) * 2).round()
    fixing.write(net, mu_N, mu_N.abs(), mu_N > 0)
    body = bytearray(body_of(codefile.encode(net)))
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
        codefile.decode(codefile.encode(gaussian), nn.Sequential(nn.Linear(2, 2)))


def test_what_cannot_be_coded_is_refused(tmp_path: Path) -> None:
    many = nn.Sequential(nn.Linear(300, 300))
    to_gaussian(many)
    with pytest.raises(ConfigError, match="Fix its weights first"):
        codefile.encode(many)
    double = nn.Sequential(nn.Linear(2, 2)).double()
    to_gaussian(double)
    with pytest.raises(ConfigError, match="float32"):
        codefile.encode(double)
    with pytest.raises(CheckpointError, match="no codebook can be read"):
        codefile.read(tmp_path / "nothing", double)
