import pickle
from pathlib import Path

import pytest
import torch

from tuneparts.core.errors import CheckpointError
from tuneparts.training import checkpoint

STATE = {
    "steps": 3,
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
    with pytest.raises(CheckpointError, match="more than tensors"):
        checkpoint.from_bytes(checkpoint.to_bytes({"evil": Evil()}))
    with pytest.raises(CheckpointError):
        checkpoint.from_bytes(pickle.dumps(Evil()))
    assert not target.exists()


def test_a_missing_file_says_where(tmp_path) -> None:
    with pytest.raises(CheckpointError, match="nowhere"):
        checkpoint.load(tmp_path / "nowhere")
