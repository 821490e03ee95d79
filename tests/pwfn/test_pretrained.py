"""Weights from wherever they are, and pretraining that trials share."""

from pathlib import Path

import pytest
import torch
from torch import nn

from tuneparts import torchvision_door
from tuneparts.errors import CheckpointError, ConfigError, DataMissingError
from tuneparts.pwfn import codefile, pretraining
from tuneparts.pwfn.pretrained import load_into, torchvision_net
from tuneparts.training import checkpoint


def net(width: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.Linear(width, 2))


FORMS = {
    "a trial's checkpoint": lambda path, state: checkpoint.save(
        path, {"learner": {"net": state, "passes": 3}, "seconds": 1.0, "rows": []}
    ),
    "a learner's state": lambda path, state: checkpoint.save(path, {"net": state, "passes": 3}),
    "a state_dict": lambda path, state: torch.save(state, path),
    "a state_dict under a key": lambda path, state: torch.save({"state_dict": state}, path),
    "of DataParallel": lambda path, state: torch.save(
        {f"module.{name}": value for name, value in state.items()}, path
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_in_which_weights_are_kept(tmp_path: Path, form: str) -> None:
    trained, fresh, path = net(), net(), tmp_path / "weights.pt"
    FORMS[form](path, trained.state_dict())
    load_into(fresh, str(path))
    for name, value in trained.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], value)
    before = {name: value.clone() for name, value in net(5).state_dict().items()}
    other = net(5)
    other.load_state_dict(before)
    with pytest.raises(CheckpointError, match="Build the net that they are of"):
        load_into(other, str(path))
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())


def test_a_compressed_file_is_a_start_as_well(tmp_path: Path) -> None:
    trained, fresh = net(), net()
    codefile.write(tmp_path / "net.code", trained, ["0.weight"])
    load_into(fresh, str(tmp_path / "net.code"))
    assert torch.equal(fresh[0].weight, trained[0].weight)


def test_what_is_no_state_is_refused(tmp_path: Path) -> None:
    for content in ({"epoch": 3}, [1, 2], {"net": {"a": 1}}):
        torch.save(content, tmp_path / "other.pt")
        with pytest.raises(CheckpointError, match=r"tensors by name.* Write them by `torch.save"):
            load_into(net(), str(tmp_path / "other.pt"))
    torch.save(nn.Linear(2, 2), tmp_path / "module.pt")
    (tmp_path / "torn.pt").write_bytes(b"PK\x03\x04 torn")
    for name in ("module.pt", "torn.pt"):
        with pytest.raises(CheckpointError, match="damaged or something else"):
            load_into(net(), str(tmp_path / name))
    with pytest.raises(CheckpointError, match="no weights can be read"):
        load_into(net(), str(tmp_path / "nothing.pt"))


def test_torchvision_weights_are_read_from_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = torchvision_door.load().models
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.delenv("TUNEPARTS_DATA", raising=False)
    with pytest.raises(DataMissingError, match=r"Download https://.*squeezenet1_1"):
        torchvision_net("torchvision:squeezenet1_1")
    with pytest.raises(ConfigError, match="it has no `resnet19`"):
        torchvision_net("torchvision:resnet19")
    own = models.get_model("squeezenet1_1", weights=None)
    file = models.get_model_weights("squeezenet1_1").DEFAULT.url.rpartition("/")[2]
    monkeypatch.setenv("TUNEPARTS_DATA", str(tmp_path))
    torch.save(own.state_dict(), tmp_path / file)
    found = torchvision_net("torchvision:squeezenet1_1")
    assert torch.equal(found.classifier[1].weight, own.classifier[1].weight)


def test_a_state_is_made_once_and_a_damaged_one_anew(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> dict[str, float]:
        made.append(1)
        return {"loss": 0.5}

    path = tmp_path / "cache" / "state.pt"
    assert pretraining.shared(path, make) == pretraining.shared(path, make) == {"loss": 0.5}
    assert len(made) == 1
    path.write_bytes(path.read_bytes()[:-3])
    assert pretraining.shared(path, make) == {"loss": 0.5}
    assert len(made) == 2
