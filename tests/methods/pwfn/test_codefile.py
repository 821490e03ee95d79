"""How small a net is, and its file."""

import copy
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tuneparts.core import _torchvision
from tuneparts.core.errors import CheckpointError, ConfigError, DataMissingError
from tuneparts.methods.pwfn import codefile
from tuneparts.methods.pwfn._gaussian import cover
from tuneparts.methods.pwfn.codefile import _measure, load, torchvision_net
from tuneparts.training import checkpoint


class Everything(nn.Module):
    """Convolution, linear layers with one tied weight, a norm's buffers, and other types."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.one, self.two = nn.Linear(16, 16), nn.Linear(16, 16)
        self.two.weight = self.one.weight
        self.register_buffer("mask", torch.tensor([True, False]))
        self.register_buffer("brain", torch.tensor([0.1, -torch.inf], dtype=torch.bfloat16))
        self.register_buffer("sixteen", torch.randn(3).half())
        self.register_buffer("none", torch.zeros(0, 2, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.norm(self.conv(x)).flatten(1)
        return torch.as_tensor(self.two(self.one(h).relu()))


def written(net: nn.Module, path: Path) -> Path:
    path.write_bytes(codefile._encode(net, cover(net)[0]))
    return path


@pytest.mark.parametrize("num_values", [1, 2, 3, 16, 17, 255, 256, 257, 300])
def test_a_file_loads_bit_for_bit_whatever_the_number_of_values(
    num_values: int, tmp_path: Path
) -> None:
    net, other = Everything(), Everything()
    x = torch.randn(5, 1, 4, 4)
    net(x)  # statistics of the norm that are not the initial ones
    with torch.no_grad():
        values = torch.randn(num_values)
        for name in cover(net)[0]:
            parameter = net.get_parameter(name)
            parameter.copy_(
                values[torch.arange(parameter.numel()).view(parameter.shape) % num_values]
            )
    load(written(net, tmp_path / "net.npz"), other)
    assert other.two.weight is other.one.weight
    for name, value in net.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name
        assert other.state_dict()[name].dtype == value.dtype
    assert torch.equal(other.eval()(x), net.eval()(x))
    assert codefile._encode(net, cover(net)[0]) == codefile._encode(other, cover(other)[0])


def test_indices_may_need_more_than_two_bytes(tmp_path: Path) -> None:
    net, other = nn.Linear(300, 300, bias=False), nn.Linear(300, 300, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.arange(90_000.0).view(300, 300))
    load(written(net, tmp_path / "net.npz"), other)
    assert torch.equal(other.weight, net.weight)


def test_the_file_is_about_as_small_as_its_entropy(tmp_path: Path) -> None:
    net = nn.Linear(300, 100, bias=False)
    drawn = torch.rand(100, 300, generator=torch.Generator().manual_seed(0)).square() * 4
    with torch.no_grad():
        net.weight.copy_(torch.tensor([0.0, 0.5, -0.5, 0.25])[drawn.long()])
    least = _measure(net.weight.flatten()).entropy * 30000 / 8
    assert least < len(codefile._encode(net, ["weight"])) < least * 1.1 + 1000


@given(st.lists(st.sampled_from([-0.0, 0.0, 0.25, -0.5, 1.0]), min_size=1))
def test_measuring_is_counting(values: list[float]) -> None:
    found = _measure(torch.tensor(values))
    shares = [sum(v == w for w in values) / len(values) for v in {v + 0.0 for v in values}]
    entropy = -sum(p * torch.tensor(p).double().log2().item() for p in shares)
    assert found.unique_weights == len(shares)
    assert found.entropy == pytest.approx(entropy, abs=1e-6)
    assert found.sparsity == pytest.approx(values.count(0.0) / len(values))
    rest = [v for v in values if v]
    assert found.entropy_nonzero == (
        pytest.approx(_measure(torch.tensor(rest)).entropy) if rest else 0
    )


def test_damage_is_refused_and_leaves_the_net_alone(tmp_path: Path) -> None:
    net, other = Everything(), Everything()
    content = written(net, tmp_path / "net.npz").read_bytes()
    before = copy.deepcopy(other.state_dict())
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    torch.save(nn.Linear(2, 2), tmp_path / "module.pt")
    cases = (b"", content[:10], content[:-1], bytes(flipped), (tmp_path / "module.pt").read_bytes())
    for wrong in cases:
        (tmp_path / "wrong").write_bytes(wrong)
        with pytest.raises(CheckpointError, match=r"wrong: cannot be read as the weights of a net"):
            load(tmp_path / "wrong", other)
    with pytest.raises(CheckpointError, match=r"nothing: cannot be read .*FileNotFoundError"):
        load(tmp_path / "nothing", other)
    for content_of_torch in ({"epoch": 3}, [1, 2], {"net": {"a": 1}}):
        torch.save(content_of_torch, tmp_path / "other.pt")
        with pytest.raises(CheckpointError, match="holds no tensors by name"):
            load(tmp_path / "other.pt", other)
    with pytest.raises(CheckpointError, match="Build the net that they are of"):
        load(tmp_path / "net.npz", nn.Linear(2, 2))
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())


def test_bytes_of_a_net_count_a_tied_tensor_once() -> None:
    coded = 4 * (4 * 9 + 4 + 16 * 16 + 2 * 16)
    assert codefile._num_plain_bytes(Everything()) == coded + 4 * 16 + 8 + 2 + 4 + 6


def small_net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


FORMS = {
    "a trial's checkpoint": lambda path, state: checkpoint.save(
        path, {"learner": {"net": state, "steps": 3}, "seconds": 1.0, "rows": []}
    ),
    "a learner's state": lambda path, state: checkpoint.save(path, {"net": state, "steps": 3}),
    "a state_dict": lambda path, state: torch.save(state, path),
    "a state_dict under a key": lambda path, state: torch.save({"state_dict": state}, path),
    "of DataParallel": lambda path, state: torch.save(
        {f"module.{name}": value for name, value in state.items()}, path
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_in_which_weights_are_kept(tmp_path: Path, form: str) -> None:
    trained, fresh, path = small_net(), small_net(), tmp_path / "weights.pt"
    FORMS[form](path, trained.state_dict())
    load(path, fresh)
    for name, value in trained.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], value)


def test_torchvision_weights_are_read_from_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = _torchvision.load().models
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
