import hashlib
import io
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tuneparts.errors import CheckpointError
from tuneparts.training import checkpoint

STATE = {
    "passes": 3,
    "net": {"w": torch.randn(4, 5, dtype=torch.float64), "b": torch.arange(3)},
    "generator": torch.Generator().get_state(),
    "names": ["a", "b"],
    "nested": {0: {"step": torch.tensor(2.0)}},
}


def test_a_state_survives_the_disk_bit_for_bit(tmp_path) -> None:
    checkpoint.save(tmp_path / "deep" / "c.pt", STATE)
    loaded = checkpoint.load(tmp_path / "deep" / "c.pt")
    assert torch.equal(loaded["net"]["w"], STATE["net"]["w"])
    assert torch.equal(loaded["generator"], STATE["generator"])
    assert loaded["names"] == ["a", "b"]
    assert loaded["nested"][0]["step"] == 2.0
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["c.pt"]


def test_bytes_share_no_memory_with_the_state() -> None:
    state = {"w": torch.zeros(3)}
    content = checkpoint.to_bytes(state)
    state["w"] += 1
    assert torch.equal(checkpoint.from_bytes(content)["w"], torch.zeros(3))


@pytest.mark.parametrize("cut", [0, 1, 20, 60, 200, -1])
def test_a_truncated_file_is_refused(cut: int) -> None:
    content = checkpoint.to_bytes(STATE)
    with pytest.raises(CheckpointError, match="truncated, damaged"):
        checkpoint.from_bytes(content[:cut])


def test_any_flipped_byte_is_noticed() -> None:
    content = checkpoint.to_bytes({"w": torch.arange(8)})
    for position in range(0, len(content), 37):
        damaged = bytearray(content)
        damaged[position] ^= 0x40
        with pytest.raises(CheckpointError):
            checkpoint.from_bytes(bytes(damaged))


class Evil:
    def __reduce__(self):
        return (Path.touch, (Path("/tmp/tuneparts-was-here"),))


def test_code_in_a_checkpoint_is_never_run(tmp_path) -> None:
    target = Path("/tmp/tuneparts-was-here")
    target.unlink(missing_ok=True)
    with pytest.raises(CheckpointError, match="will not be loaded"):
        checkpoint.from_bytes(checkpoint.to_bytes({"evil": Evil()}))
    with pytest.raises(CheckpointError):
        checkpoint.from_bytes(pickle.dumps(Evil()))
    assert not target.exists()


def test_a_missing_file_says_where(tmp_path) -> None:
    with pytest.raises(CheckpointError, match="nowhere"):
        checkpoint.load(tmp_path / "nowhere")


MAGIC = b"tuneparts checkpoint 1\n"
END = b"PK\x05\x06"


def sealed(body: bytes) -> bytes:
    return MAGIC + hashlib.sha256(body).digest() + body


def rebuilt(change: Callable[[str, bytes], bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A well sealed checkpoint whose records were changed."""
    buffer, out = io.BytesIO(), io.BytesIO()
    torch.save({"w": torch.arange(4.0)}, buffer)
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(out, "w", compression) as new:
        for record in old.infolist():
            new.writestr(record.filename, change(record.filename, old.read(record)))
    return sealed(out.getvalue())


def pickled(content: bytes) -> Callable[[str, bytes], bytes]:
    return lambda name, old: content if name.endswith("data.pkl") else old


def storage(kind: bytes, numel: bytes = b"K\x04") -> bytes:
    return b"(X\x07\0\0\0storagec" + kind + b"\nX\x01\0\0\x000X\x03\0\0\0cpu" + numel + b"tQ"


def tensor(size: bytes, stride: bytes, offset: bytes = b"K\0") -> bytes:
    """A pickle of one tensor over the record 0, which has four numbers."""
    parts = storage(b"torch\nFloatStorage") + offset + size + stride
    hooks = b"\x89ccollections\nOrderedDict\n)R"
    return b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + parts + hooks + b"tR."


def records_of(state: object) -> dict[str, bytes]:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with zipfile.ZipFile(buffer) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def two_directories() -> bytes:
    """Python sees records that are stored as they are, torch a record that unpacks to 16 MiB.

    Python's reader takes the zip64 end record that stands just before its locator, torch's the one
    that the locator points at.
    """

    def end64(body: bytes) -> bytes:
        count, size, start = struct.unpack("<HLL", body[body.rindex(END) :][10:20])
        return b"PK\x06\x06" + struct.pack(
            "<QHHLLQQQQ", 44, 45, 45, 0, 0, count, count, size, start
        )

    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in records_of({"w": torch.zeros(4 << 20)}).items():
            archive.writestr(name, content)
    body = whole.getvalue()
    hidden = body.rindex(END)
    whole = io.BytesIO(body[:hidden] + end64(body))
    with zipfile.ZipFile(whole, "a") as archive:
        for name, content in records_of({"w": torch.arange(4.0)}).items():
            archive.writestr(name, content)
    body = whole.getvalue()
    locator = b"PK\x06\x07" + struct.pack("<LQL", 0, hidden, 1)
    end = END + struct.pack("<HHHHLLH", 0, 0, 0xFFFF, 0xFFFF, 2**32 - 1, 2**32 - 1, 0)
    return sealed(body[: body.rindex(END)] + end64(body) + locator + end)


HOSTILE = {
    "compressed": rebuilt(lambda _, old: old, zipfile.ZIP_DEFLATED),
    "bomb": rebuilt(pickled(b"N" * 10_000_000 + b"."), zipfile.ZIP_DEFLATED),
    "memory": rebuilt(pickled(b"\x80\x02c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R.")),
    "os.system": rebuilt(pickled(b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.")),
    "stack global": rebuilt(pickled(b"\x80\x04\x8c\x02os\x8c\x06system\x93.")),
    "tensor too long": rebuilt(pickled(tensor(b"K\xf0\x85", b"K\x01\x85"))),
    "tensor elsewhere": rebuilt(pickled(tensor(b"K\x04\x85", b"K\x01\x85", b"K\x01"))),
    "negative offset": rebuilt(pickled(tensor(b"K\x01\x85", b"K\x01\x85", b"J\xff\xff\xff\xff"))),
    "stride 0": rebuilt(pickled(tensor(b"\x8a\x06\0\0\0\0\0\x01\x85", b"K\0\x85"))),
    "overflow": rebuilt(pickled(tensor(b"\x8a\x08\0\0\0\0\0\0\0\x40K\x04\x86", b"K\0K\0\x86"))),
    "a storage of 8 GiB": rebuilt(
        pickled(b"\x80\x02ctorch.storage\nUntypedStorage\n\x8a\x05\0\0\0\0\x02\x85R.")
    ),
    "a typed storage": rebuilt(pickled(b"\x80\x02ctorch\nFloatStorage\nJ\0\0\0\x10\x85R.")),
    "bytearray of 8 GiB": rebuilt(pickled(b"\x80\x05\x96\0\0\0\0\x02\0\0\0.")),
    "state of a tensor": rebuilt(pickled(tensor(b"K\x04\x85", b"K\x01\x85")[:-1] + b"}b.")),
    "big numbers first": rebuilt(lambda name, old: b"big" if name.endswith("order") else old),
    "no pickle": rebuilt(lambda name, old: b"" if name.endswith("data.pkl") else old),
    "not a mapping": rebuilt(pickled(b"\x80\x02]q\x00.")),
    "not an archive": sealed(b"PK" + b"\0" * 100),
    "bare pickle": sealed(pickle.dumps({"w": 1})),
}  # fmt: skip


@pytest.mark.parametrize("case", list(HOSTILE))
def test_a_well_sealed_hostile_file_is_refused(case: str) -> None:
    with pytest.raises(CheckpointError, match=r"tensors and plain values|is a mapping"):
        checkpoint.from_bytes(HOSTILE[case])


def test_every_type_of_tensor_survives() -> None:
    names = "float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 bool complex64"
    state = {name: torch.ones(3, dtype=getattr(torch, name)) for name in names.split()}
    state["view"] = torch.arange(12.0).view(3, 4).t()[1:]
    loaded = checkpoint.from_bytes(checkpoint.to_bytes(state))
    for name, tensor in state.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)


def test_the_state_of_a_module_survives() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    state = {"net": net.state_dict(), "parameter": net[0].weight}
    loaded = checkpoint.from_bytes(checkpoint.to_bytes(state))
    net.load_state_dict(loaded["net"])
    assert torch.equal(loaded["parameter"], net[0].weight)


def test_what_torch_would_unpack_stays_packed() -> None:
    content = two_directories()
    assert len(content) < 200_000
    body = content[len(MAGIC) + 32 :]
    assert torch.load(io.BytesIO(body), weights_only=True)["w"].nbytes == 16 << 20
    assert torch.equal(checkpoint.from_bytes(content)["w"], torch.arange(4.0))


def test_tensors_that_share_memory_share_it_again() -> None:
    whole = torch.arange(12.0)
    state = {"whole": whole, "part": whole[2:5], "parameter": torch.nn.Parameter(whole.view(3, 4))}
    loaded = checkpoint.from_bytes(checkpoint.to_bytes(state))
    loaded["whole"][3] = -1
    assert loaded["part"][1] == -1
    assert loaded["parameter"][0, 3] == -1
    assert loaded["parameter"].requires_grad
    assert not loaded["part"]._is_view()
    assert loaded["whole"].data_ptr() % 64 == 0


def test_the_memory_layout_and_the_metadata_of_a_state_dict_survive() -> None:
    net = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    loaded = checkpoint.from_bytes(checkpoint.to_bytes({"net": net.state_dict()}))["net"]
    assert loaded["weight"].stride() == net.weight.stride()
    assert loaded._metadata == net.state_dict()._metadata
    assert list(loaded) == ["weight", "bias"]
