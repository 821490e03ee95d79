"""Weights from wherever they are, and pretraining that trials share."""

from pathlib import Path

import pytest
import torch
from torch import nn

from tuneparts.core import torchvision_door
from tuneparts.core.errors import ConfigError, DataMissingError
from tuneparts.methods.pwfn import learner as pretraining
from tuneparts.methods.pwfn.codefile import load, torchvision_net
from tuneparts.training import checkpoint


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


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
    load(path, fresh)
    for name, value in trained.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], value)


def test_torchvision_weights_are_read_from_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = torchvision_door.load().models
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.delenv("TUNEPARTS_DATA", raising=False)
    with pytest.raises(DataMissingError, match=r"Download https://.*squeezenet1_1"):
        torchvision_net("torchvision:squeezenet1_1")
    with pytest.raises(ConfigError, match="`torchvision:resnet19`: torchvision has no such net"):
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
