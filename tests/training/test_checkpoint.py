import pickle
from pathlib import Path

import pytest
import torch

from tuneparts.core.errors import CheckpointError
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
