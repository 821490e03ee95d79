import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuneparts import seeding
from tuneparts.models import DigitsCnn, WideResNet
from tuneparts.models.heads import head_layers

X = torch.randn(8, 12, generator=torch.Generator().manual_seed(0))
TOKENS = torch.randint(0, 11, (8, 7), generator=torch.Generator().manual_seed(0))


class Base(nn.Module):
    """A net with the head `b`, and a layer `t` that is registered and called after it."""

    width = 1

    def __init__(self, num_outputs: int = 3) -> None:
        super().__init__()
        self.a, self.m = nn.Linear(12, 20), nn.Linear(20, 20)
        self.b, self.t = nn.Linear(20, num_outputs), nn.Linear(12, self.width)

    def hidden(self, x: Tensor) -> Tensor:
        return self.m(self.a(x).relu()).relu()


class Gated(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.hidden(x)) * torch.sigmoid(self.t(x))


class WideAndDeep(Base):
    width = 3

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.hidden(x)) + self.t(x)


class Concatenated(Base):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.b(self.hidden(x)), self.t(x)], dim=1)


class InTraining(Base):
    width = 20

    def forward(self, x: Tensor) -> Tensor:
        h = self.hidden(x)
        if self.training:
            h = h + 0.1 * self.t(x)
        return self.b(h)


class Auxiliary(Base):
    width = 3

    def forward(self, x: Tensor) -> Tensor:
        main = self.b(self.hidden(x))
        return main + 0.3 * self.t(x) if self.training else main


class Probabilities(Base):
    width = 20

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.hidden(x) + self.t(x)).softmax(dim=1)


class OneOutput(Base):
    def __init__(self) -> None:
        super().__init__(num_outputs=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.hidden(x) + self.t(x))


class TwoClassBottleneck(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(12, 2), nn.ReLU(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))


class ZeroHead(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.hidden(x)) * self.scale

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(3))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(11, 8), nn.LSTM(8, 16, batch_first=True)
        self.mix, self.head = nn.Linear(16, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.lstm(self.embed(x))[0][:, -1]
        return F.log_softmax(self.head(self.mix(h).relu()), dim=1)


@pytest.mark.parametrize(
    ("build", "x", "heads"),
    [
        (Gated, X, {"b"}),
        (WideAndDeep, X, {"b", "t"}),
        (Concatenated, X, {"b", "t"}),
        (InTraining, X, {"b"}),
        (Auxiliary, X, {"b", "t"}),
        (Probabilities, X, {"b"}),
        (OneOutput, X, {"b"}),
        (TwoClassBottleneck, X, {"4"}),
        (ZeroHead, X, {"b"}),
        (Recurrent, TOKENS, {"head"}),
    ],
)
def test_heads_are_the_layers_whose_units_are_outputs(build, x, heads):
    with seeding.isolated(0, "init"):
        net = build()
    assert set(head_layers(net, x)) == heads


@pytest.mark.parametrize("config", [DigitsCnn(), WideResNet(depth=10)])
def test_ordinary_nets_have_the_layer_that_runs_last_as_their_head(config):
    net = config.build((1, 8, 8), 10).eval()
    called = []
    for name, module in net.named_modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            module.register_forward_hook(lambda *_, name=name: called.append(name))
    x = torch.randn(4, 1, 8, 8)
    net(x)
    assert head_layers(net, x) == (called[-1],)


def test_a_net_is_not_changed_by_the_look_for_heads():
    net = nn.Sequential(nn.Linear(12, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    net[1].eval()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    state = torch.get_rng_state()
    assert head_layers(net, X) == ("2",)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert not net[1].training
    assert not any(module._forward_hooks for module in net.modules())
    assert torch.equal(torch.get_rng_state(), state)
