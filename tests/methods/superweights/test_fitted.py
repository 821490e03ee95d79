import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError
from tuneparts.methods.superweights import fit
from tuneparts.methods.superweights.fitted import _unshared_weights

SETTINGS: dict[str, Any] = {"steps": 40, "interval": 20, "batch_size": 20}


def _net(width=16, seed=0):
    with seeding.isolated(seed, "init"):
        return nn.Sequential(
            nn.Linear(6, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 3),
        )


def _data():
    x = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
    return x, x[:, :3].argmax(dim=1)


def test_members_are_plain_nets_and_the_given_ones_are_untouched():
    nets = [_net(16), _net(12, seed=1)]
    before = [copy.deepcopy(net.state_dict()) for net in nets]
    x, y = _data()
    seen = []
    ensemble = fit(nets, x, y, budget=300, report=seen.append, **SETTINGS)
    for net, old, member in zip(nets, before, ensemble.members, strict=True):
        assert all(torch.equal(v, old[k]) for k, v in net.state_dict().items())
        assert [type(m) for m in member.modules()] == [type(m) for m in net.modules()]
        assert member.state_dict().keys() == old.keys()
        for name, parameter in member.named_parameters():
            assert not torch.equal(parameter, old[name]), name
    assert seen == ensemble.history
    probabilities = torch.stack([net(x).double().softmax(1) for net in ensemble.members]).mean(0)
    assert torch.allclose(ensemble.predict(x.numpy()).exp(), probabilities)
    assert seen[-1]["train/loss"] < seen[0]["train/loss"]


def test_nets_in_evaluation_mode_are_trained_as_those_in_training_mode():
    nets = [_net(16), _net(12, seed=1)]
    usual = fit(nets, *_data(), **SETTINGS)
    given = fit([net.eval() for net in nets], *_data(), **SETTINGS)
    assert given.history == usual.history
    assert torch.equal(given.members[0][1].running_mean, usual.members[0][1].running_mean)


def test_sizes_are_within_the_budget_and_add_up():
    nets = [_net(16), _net(16, seed=1)]
    ensemble = fit(nets, *_data(), budget=360, **SETTINGS)
    sizes = ensemble.sizes
    alone = sum(p.numel() for net in nets for p in net.parameters())
    shareable = 2 * (6 * 16 + 16 * 16)
    assert sizes.plain == alone
    assert sizes.private == alone - shareable
    assert 352 <= sizes.templates <= 360
    assert sizes.templates < sizes.shared < sizes.templates + 40
    assert sizes.shared + sizes.private == ensemble.history[-1]["size/parameters"]
    assert ensemble.private[0].keys() == {"1", "5"}
    assert ensemble.private[0]["5"] == "is the head"


def test_a_function_builds_each_member_from_a_seed_of_its_own():
    def build():
        return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

    x, y = _data()
    state = torch.get_rng_state()
    first = fit(build, x, y, members=2, **SETTINGS)
    again = fit(build, x, y, members=2, **SETTINGS)
    other = fit(build, x, y, members=2, seed=1, **SETTINGS)
    assert torch.equal(torch.get_rng_state(), state)
    assert first.history == again.history != other.history
    assert not torch.equal(first.members[0][2].weight, first.members[1][2].weight)


@pytest.mark.parametrize(
    ("nets", "fields", "message"),
    [
        (_net(), {}, "give a list of torch modules"),
        ([], {}, "of 0 nets"),
        ([_net()], {"members": 2}, "`members` is 2, of 1 nets"),
        (_net, {"members": 0}, "`members` is 0"),
        (lambda: "net", {"members": 1}, "give a list of torch modules"),
        ([_net()], {"budget": 10}, "the budget must hold"),
        ([_net()], {"budget": 400, "allocation": {"budget": 300}}, "in `allocation` as well"),
        ([_net()], {"budget": -5}, "budget.*-5"),
        ([_net()], {"budget": 3.5}, "budget.*3.5"),
        ([_net()], {"pases": 3}, "Did you mean `steps`"),
    ],
)
def test_what_cannot_be_meant_is_refused(nets, fields, message):
    with pytest.raises(ConfigError, match=message):
        fit(nets, *_data(), **fields)


def test_frozen_layers_stay_as_they_are():
    net = _net()
    net[3].weight.requires_grad_(False)
    ensemble = fit([net, _net(seed=1)], *_data(), **SETTINGS)
    assert ensemble.private[0]["3"] == "does not require gradients"
    assert torch.equal(ensemble.members[0][3].weight, net[3].weight)
    assert "3" not in ensemble.private[1]


@pytest.fixture(scope="module")
def ensemble():
    nets = [_net(16), _net(12, seed=1), _net(16, seed=2)]
    return fit(nets, *_data(), budget=300, sharing={"tau": 0.2}, **SETTINGS)


def test_a_prediction_stops_at_its_limit(ensemble):
    x, _ = _data()

    def mean_of(num):
        return torch.stack([net(x).double().softmax(1) for net in ensemble.members[:num]]).mean(0)

    first, second, _ = ensemble.flops
    for limit, num in (
        ({"members": 2}, 2),
        ({"flops": first + second}, 2),
        ({"flops": first + second - 1}, 1),
        ({"flops": 1}, 1),  # the first member always predicts
        ({"milliseconds": 0.0}, 1),
        ({"milliseconds": 1e9}, 3),
        ({}, 3),
    ):
        torch.testing.assert_close(ensemble.predict(x, **limit).exp(), mean_of(num))
    with pytest.raises(ConfigError, match="`members` is 0: must be at least 1"):
        ensemble.predict(x, members=0)


def test_members_can_be_carried_away(ensemble, tmp_path):
    x, _ = _data()
    paths = ensemble.export(tmp_path / "members")
    for path, net, member in zip(
        paths, [_net(16), _net(12), _net(16)], ensemble.members, strict=True
    ):
        net.load_state_dict(torch.load(path, weights_only=True))
        assert torch.equal(net.eval()(x), member(x))


def test_threads_may_predict_at_once(ensemble):
    x, _ = _data()
    expected = [ensemble.predict(x[:num]) for num in range(1, 9)]
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda num: ensemble.predict(x[: num % 8 + 1]), range(200))
        assert all(torch.equal(out, expected[num % 8]) for num, out in enumerate(found))


def test_an_ensemble_can_be_pickled(ensemble):
    x, _ = _data()
    again = pickle.loads(pickle.dumps(ensemble))
    assert torch.equal(again.predict(x), ensemble.predict(x))
    assert again.learner.config.sharing.tau == 0.2


class _Skipping(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.rest, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = self.first(x).relu()
        if not self.training or torch.rand(()) < 0.5:
            h = h + self.rest(h).relu()
        return self.head(h)


def test_layers_may_be_skipped_while_gradients_are_compared():
    stages = {"norms": "train", "analysis": 0.2}
    ensemble = fit(_Skipping, *_data(), members=2, stages=stages, steps=40, batch_size=20)
    assert list(ensemble.private[0]) == ["head"]


TOKENS = torch.randint(0, 11, (60, 7), generator=torch.Generator().manual_seed(0))
LABELS = TOKENS[:, 0] % 3
RECURRENT = {
    "steps": 2,
    "batch_size": 20,
    "members": 2,
    "sharing": {"clusters": "depth", "beta": None},
}
EMBEDDING, LSTM, MIX = 11 * 8, 4 * 16 * (8 + 16), 16 * 8


class _Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(11, 8), nn.LSTM(8, 16, batch_first=True)
        self.mix, self.norm, self.head = nn.Linear(16, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.norm(self.mix(self.lstm(self.embed(x))[0][:, -1]).relu()))


def test_the_budget_counts_layers_that_cannot_share():
    unshared = 2 * (EMBEDDING + LSTM)
    ensemble = fit(_Recurrent, TOKENS, LABELS, budget=unshared + 2 * MIX, **RECURRENT)
    assert ensemble.sizes.unshared == unshared
    assert ensemble.sizes.templates == 2 * MIX
    tight = fit(_Recurrent, TOKENS, LABELS, budget=unshared + 2 * MIX - 1, **RECURRENT)
    assert tight.sizes.templates == MIX
    with pytest.raises(ConfigError, match=r"300 also counts 3248 .*: `lstm.weight_hh_l0` of"):
        fit(_Recurrent, TOKENS, LABELS, budget=300, **RECURRENT)
    templates_alone = fit(_Recurrent, TOKENS, LABELS, allocation={"budget": MIX}, **RECURRENT)
    assert templates_alone.sizes.templates == MIX


def test_heads_norms_biases_and_frozen_weights_are_not_counted_and_tied_ones_once():
    net = _Recurrent()
    net.norm = nn.LayerNorm((1, 8))
    net.again = nn.Embedding(11, 8)
    net.again.weight = net.embed.weight
    net.alias = net.mix
    net.lstm.weight_hh_l0.requires_grad_(False)
    assert _unshared_weights(net, ["mix", "head"]) == {
        "embed.weight": EMBEDDING,
        "lstm.weight_ih_l0": 4 * 16 * 8,
    }
