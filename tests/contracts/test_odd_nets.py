"""Nets that a method has never seen: each is treated rightly, or refused by layer and reason."""

import copy
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tuneparts as tp
from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError
from tuneparts.methods import pwfn, superweights


class TiedLinears(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)
        self.two.weight = self.one.weight
        self.mix, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.two(torch.relu(self.one(x))))
        return self.head(torch.relu(self.mix(h)))


class TiedEmbedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 6)
        self.mix, self.deep = nn.Linear(6, 8), nn.Linear(8, 6)
        self.head = nn.Linear(6, 10, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(_tokens(x)).mean(dim=1)
        return self.head(self.deep(torch.relu(self.mix(h))))


class Grouped(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Unflatten(1, (1, 2, 3)),
            nn.Conv2d(1, 4, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(4, 8, 3, padding=1, groups=4),
            nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False),
            nn.Flatten(),
            nn.Linear(48, 3),
        )


class WithEmbedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.head = nn.Embedding(10, 6), nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.mix(self.embed(_tokens(x)).mean(dim=1))))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.Linear(2, 8)
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
        self.mix, self.head = nn.Linear(24, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.rows(x.view(-1, 3, 2))
        return self.head(self.mix(self.attention(rows, rows, rows)[0].flatten(1)))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.Linear(2, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(self.rows(x.view(-1, 3, 2))).flatten(1))


class Bare(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.full((8,), 0.1))
        self.mix, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.mix(x) + self.shift))


class HeadFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.mix, self.deep = nn.Linear(8, 3), nn.Linear(6, 8), nn.Linear(8, 8)
        self.aside = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.deep(torch.relu(self.mix(x)))))


class OneLayerTwice(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(6, 6)
        self.two = self.one
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.two(torch.relu(self.one(x)))))


class PlainList(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix, self.deep, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.order = [self.mix, self.deep]

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.order:
            x = torch.relu(layer(x))
        return self.head(x)


class ReadAside(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix, self.deep, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        back = F.linear(torch.relu(self.mix(x)), self.mix.weight.T)
        return self.head(torch.relu(self.deep(self.mix(back))))


class Hooked(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
        self[0].register_forward_hook(_doubled)


def _doubled(_module: nn.Module, _inputs: object, output: Tensor) -> Tensor:
    return 2 * output


def _tokens(x: Tensor) -> Tensor:
    return x.abs().mul(4).long().clamp(max=9)


def _no_bias() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False))


def _batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def _weight_norm() -> nn.Module:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(6, 8))
    return nn.Sequential(layer, nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def _conv1d() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (2, 3)), nn.Conv1d(2, 4, 2), nn.Flatten(), nn.Linear(8, 8), nn.Linear(8, 3)
    )


@dataclass
class Odd:
    """A net, and what each call must make of it."""

    build: object
    in_float: dict[str, str] = field(default_factory=dict)
    """What members do not share: name to a part of the reason."""
    uncoded: dict[str, str] = field(default_factory=dict)
    """What `compress` leaves out: name to a part of the reason."""
    head: tuple[str, ...] = ("head",)
    """What members do not share besides."""
    shared: tuple[str, ...] = ()
    """What members share although it stays in float."""
    cannot_share: str = ""
    cannot_partition: str = ""


ODD = {
    "tied linear layers": Odd(
        TiedLinears, {"one": "shares its weight with `two.weight`", "two": "shares its weight"}
    ),
    "tied embedding": Odd(
        TiedEmbedding,
        {"embed": "Embedding", "head": "shares its weight with `embed.weight`"},
    ),
    "grouped convolutions": Odd(Grouped, head=("6",)),
    "embedding": Odd(WithEmbedding, {"embed": "Embedding"}),
    "attention": Odd(
        Attention,
        {
            "attention.in_proj_weight": "parameter of a MultiheadAttention itself",
            "attention.in_proj_bias": "parameter of a MultiheadAttention itself",
            "attention.out_proj": "not a plain Linear",
        },
    ),
    "transformer": Odd(
        Transformer,
        {
            "block.self_attn.in_proj_weight": "parameter of a MultiheadAttention itself",
            "block.self_attn.in_proj_bias": "parameter of a MultiheadAttention itself",
            "block.self_attn.out_proj": "not a plain Linear",
            "block.norm1": "LayerNorm",
            "block.norm2": "LayerNorm",
        },
        {f"block.norm{i}.{key}": "LayerNorm (8)" for i in (1, 2) for key in ("weight", "bias")},
    ),
    "no bias": Odd(_no_bias, head=("2",)),
    "bare parameter": Odd(
        Bare,
        {"shift": "parameter of a Bare itself, outside its layers"},
        {"shift": "is of a Bare (8)"},
    ),
    "batch norm": Odd(
        _batch_norm,
        {"1": "BatchNorm1d"},
        {"1.weight": "BatchNorm1d (8)", "1.bias": "BatchNorm1d (8)"},
        head=("3",),
    ),
    "head registered first": Odd(HeadFirst, {"aside": "never called"}),
    "one layer twice": Odd(OneLayerTwice),
    "layers in a list": Odd(
        PlainList,
        {"mix": "past its own call", "deep": "past its own call"},
        cannot_share="member 0 has none: `mix` is read past its own call",
        cannot_partition="other values in `mix.weight`, `mix.bias`, `deep.weight`",
    ),
    "weight read aside": Odd(ReadAside, {"mix": "past its own call"}, shared=("mix",)),
    "hook": Odd(Hooked, {"0": "has hooks"}, head=("4",)),
    "weight norm": Odd(
        _weight_norm,
        {
            "0.bias": "parameter of a ParametrizedLinear itself",
            "0.parametrizations.weight.original0": "parameter of a ParametrizationList itself",
            "0.parametrizations.weight.original1": "parameter of a ParametrizationList itself",
        },
        {
            "0.parametrizations.weight.original0": "is of a ParametrizationList (8)",
            "0.parametrizations.weight.original1": "is of a ParametrizationList (48)",
        },
        head=("4",),
    ),
    "conv1d": Odd(_conv1d, {"1": "Conv1d"}, head=("4",)),
}
CASES = pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
SETTINGS = {"steps": 30, "interval": 15, "batch_size": 20}


def _built(odd: Odd, seed: int = 0) -> nn.Module:
    with seeding.isolated(seed, "init"):
        return odd.build()


def _data() -> tuple[Tensor, Tensor]:
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    return x, x[:, :3].argmax(dim=1)


def _ties(net: nn.Module) -> list[tuple[str, int]]:
    first: dict[int, int] = {}
    return [
        (name, first.setdefault(id(p), len(first)))
        for name, p in net.named_parameters(remove_duplicate=False)
    ]


def _is_under(name: str, layers: object) -> bool:
    return any(name == layer or name.startswith(f"{layer}.") for layer in layers)


def _used(net: nn.Module) -> set[str]:
    """Parameters that a loss depends on."""
    net = copy.deepcopy(net).train()
    x, y = _data()
    F.cross_entropy(net(x), y).backward()
    return {name for name, p in net.named_parameters() if p.grad is not None}


@CASES
def test_compress(odd, tmp_path):
    net, (x, y) = _built(odd), _data()
    start = copy.deepcopy(net.state_dict())
    file = tmp_path / "net.npz"
    small = pwfn.compress(net, (x, y), (x, y), file=file, pretrain=0.5, **SETTINGS)

    assert small.left_out.keys() == odd.uncoded.keys()
    for name, reason in odd.uncoded.items():
        assert reason in small.left_out[name]
    assert all(torch.equal(v, net.state_dict()[k]) for k, v in start.items())
    assert _ties(small.net) == _ties(net)

    own = dict(small.net.named_parameters())
    coded = [p.detach().flatten() for n, p in own.items() if n not in odd.uncoded]
    values = torch.cat(coded)
    assert len(values.unique()) == small.num_values
    assert small.covered == len(values) / sum(p.numel() for p in own.values())
    in_float = odd.uncoded.keys() & _used(net)
    for name in in_float:
        assert not torch.equal(own[name], start[name]), f"{name} did not train"

    # The learner scored the net that trained; the plain one must compute the same.
    assert small.history[-1]["val/nll"] == pytest.approx(small.after["nll"], rel=1e-5)
    loaded = pwfn.load(file, _built(odd, seed=1)).eval()
    assert torch.equal(loaded(x), small.net(x))


def test_compress_refuses_a_net_of_which_nothing_can_be_covered():
    net = nn.Sequential(nn.BatchNorm1d(6), nn.Unflatten(1, (3, 2)), nn.Flatten())
    with pytest.raises(ConfigError, match=r"`0.weight` is of a BatchNorm1d"):
        pwfn.compress(net, _data(), **SETTINGS)


@CASES
def test_shared_weights(odd):
    nets, (x, y) = [_built(odd), _built(odd, seed=1)], _data()
    starts = [copy.deepcopy(net.state_dict()) for net in nets]
    if odd.cannot_share:
        with pytest.raises(ConfigError, match=odd.cannot_share):
            superweights.fit(nets, x, y, **SETTINGS)
        return
    ensemble = superweights.fit(nets, x, y, **SETTINGS)
    for net, start, member, private in zip(
        nets, starts, ensemble.members, ensemble.private, strict=True
    ):
        assert private.keys() == {*odd.in_float, *odd.head} - {*odd.shared}
        assert all(torch.equal(v, net.state_dict()[k]) for k, v in start.items())
        assert _ties(member) == _ties(net)
        own = dict(member.named_parameters())
        for name in _used(net):
            assert not torch.equal(own[name], start[name]), f"{name} did not train"
    assert ensemble.sizes.plain == sum(p.numel() for net in nets for p in net.parameters())
    # What trained are members that borrow their weights; the plain ones must compute the same.
    with torch.no_grad():
        borrowed = ensemble.learner.model.eval()(x)
        alone = torch.stack([member(x) for member in ensemble.members])
    assert torch.allclose(borrowed, alone, atol=1e-5)


@CASES
def test_partitioned(odd):
    net, (x, y) = _built(odd), _data()
    settings = {name: value for name, value in SETTINGS.items() if name != "steps"}
    estimator = tp.PartitionedClassifier(net, steps=SETTINGS["steps"], method=settings)
    start = copy.deepcopy(net.state_dict())
    if odd.cannot_partition:
        with pytest.raises(ConfigError, match=odd.cannot_partition):
            estimator.fit(x, y)
        assert all(torch.equal(v, net.state_dict()[k]) for k, v in start.items())
        return
    found = estimator.fit(x, y)
    assert all(torch.equal(v, net.state_dict()[k]) for k, v in start.items())
    assert _ties(found.net_) == _ties(net)
    own = dict(found.net_.named_parameters())
    for name in _used(net):
        assert not torch.equal(own[name], start[name]), f"{name} did not train"
    expected = found.net_.eval()(x).double()[:, :3].softmax(1).detach().numpy()
    assert found.predict_proba(x) == pytest.approx(expected, abs=1e-6)
