import hashlib
import io
import pickle
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


HOSTILE = {
    "compressed": rebuilt(lambda _, old: old, zipfile.ZIP_DEFLATED),
    "bomb": rebuilt(pickled(b"N" * 10_000_000 + b"."), zipfile.ZIP_DEFLATED),
    "memory": rebuilt(pickled(b"\x80\x02c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R.")),
    "os.system": rebuilt(pickled(b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.")),
    "stack global": rebuilt(pickled(b"\x80\x04\x8c\x02os\x8c\x06system\x93.")),
    "storage too long": rebuilt(lambda _, old: old.replace(b"K\x04", b"K\xf0")),
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
