"""Nets in which the levels of a mixed batch would reach each other."""

from typing import get_args

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError
from tuneparts.methods.partitioned import MixedBatch, Partitioned, fit
from tuneparts.methods.partitioned.fitted import Form
from tuneparts.methods.partitioned.isolation import check_mixable
from tuneparts.models.survey import is_known

SETTINGS = {"passes": 4, "interval": 4, "batch_size": 8}


class _Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(12, 20), nn.Linear(20, 3)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class _WeightAsDecoder(_Two):
    def __init__(self):
        super().__init__()
        self.b = nn.Linear(12, 3)

    def forward(self, x):
        return self.b(torch.relu(F.linear(torch.relu(self.a(x)), self.a.weight.t())))


class _WeightNorm(_Two):
    def forward(self, x):
        return self.b(torch.relu(self.a(x) / self.a.weight.norm()))


class _RowsTurned(_Two):
    def forward(self, x):
        return self.b(torch.relu(self.a(x)).flip(0)).flip(0)


class _InputsTurned(_Two):
    def forward(self, x):
        return super().forward(x.flip(0))


class _BatchMean(_Two):
    def forward(self, x):
        h = torch.relu(self.a(x))
        return self.b(h - h.mean(0))


class _MixedInTraining(_Two):
    def forward(self, x):
        return super().forward(x + x.flip(0) if self.training else x)


class _TimeFirst(nn.Module):
    """As many steps as the probe has rows, so that no shape tells them apart."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(12, 20), nn.Linear(20, 3)

    def forward(self, x):
        steps = torch.stack([x * k for k in range(1, 10)])
        return self.b(torch.relu(self.a(steps)).mean(0))


class _Noisy(_Two):
    """Random and in float32, but each row by itself."""

    def forward(self, x):
        h = torch.relu(self.a(x.float())) + torch.zeros(12) @ torch.ones(12, 20)
        return self.b(F.dropout(h, 0.3, self.training))


LEAKY = {
    _WeightAsDecoder: "depends on `a.weight` of others",
    _WeightNorm: "subnetwork 1 is another",
    _RowsTurned: "depends on",
    _InputsTurned: "is another|depends on",
    _BatchMean: "subnetwork 1 is another",
    _MixedInTraining: "level 1 depends on the inputs of others",
    _TimeFirst: "is another",
}


def _inputs(num=60):
    return torch.randn(num, 12, generator=torch.Generator().manual_seed(0))


def _built(kind):
    with seeding.isolated(0, "init"):
        return kind()


def _parts(net):
    return Partitioned(
        net, proportions=(0.6, 0.2, 0.2), seed=0, scheme="node", example=_inputs()[:1]
    )


@pytest.mark.parametrize("kind", LEAKY)
def test_a_net_that_joins_levels_is_refused_by_the_reason(kind):
    with pytest.raises(ConfigError, match=LEAKY[kind]):
        check_mixable(_parts(_built(kind)), _inputs()[:8])


@pytest.mark.parametrize("form", [form for form in get_args(Form) if form != "published"])
@pytest.mark.parametrize("kind", [_WeightAsDecoder, _BatchMean])
def test_single_weights_of_such_a_net_are_dealt_out_instead(kind, form):
    x = _inputs()
    found = fit(_built(kind), x, x[:, :3].argmax(1), form=form, **SETTINGS)
    assert not found.settings["mixed"]
    assert "outside of its layer's call" in found.settings["note"]


def test_such_a_net_is_refused_where_a_mixed_batch_was_asked_for():
    x = _inputs()
    with pytest.raises(ConfigError, match="Set `mixed` to false"):
        fit(_built(_BatchMean), x, x[:, :3].argmax(1), scheme="node", mixed=True, **SETTINGS)


@pytest.mark.parametrize("kind", [_Two, _Noisy])
def test_a_net_that_treats_each_row_by_itself_passes_and_nothing_changes(kind):
    net = _built(kind).eval()
    parts = _parts(net)
    before = {name: tensor.clone() for name, tensor in parts.state_dict().items()}
    drawn = torch.get_rng_state()
    check_mixable(parts, _inputs()[:8])
    assert torch.equal(torch.get_rng_state(), drawn)
    assert not net.training
    assert all(torch.equal(tensor, before[n]) for n, tensor in parts.state_dict().items())


def test_a_last_layer_at_zero_hides_nothing():
    net = _built(_WeightAsDecoder)
    nn.init.zeros_(net.b.weight)
    with pytest.raises(ConfigError, match=r"`a.weight` of others"):
        check_mixable(_parts(net), _inputs()[:8])


def test_norms_with_parts_of_their_own_and_empty_partitions_pass():
    net = _built(
        lambda: nn.Sequential(nn.Linear(12, 20), nn.LayerNorm(20), nn.ReLU(), nn.Linear(20, 3))
    )
    x = _inputs()
    for proportions in ((0.6, 0.0, 0.4), (0.3, 0.2, 0.2, 0.1, 0.1, 0.1), (1.0,)):
        parts = Partitioned(net, proportions=proportions, seed=0, scheme="node", example=x[:1])
        check_mixable(parts, x[:2])


def test_nets_of_known_layers_need_no_trial():
    assert is_known(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    assert not is_known(_Two())


def test_leaves_have_the_names_of_the_parameters():
    batch = MixedBatch(_parts(_built(_Two)), torch.tensor([1, 2]))
    assert list(batch.named_leaves) == ["a.weight", "a.bias", "b.weight", "b.bias"]
    assert all(map(torch.equal, batch.named_leaves.values(), batch.leaves))


def test_a_net_too_small_for_its_partitions_has_single_weights_dealt_out():
    x = _inputs()
    net = nn.Sequential(nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 3))
    found = fit(net, x, x[:, :3].argmax(1), **SETTINGS)
    assert "owns none" in found.settings["note"]
    assert found.settings["scheme"] == "random"


def test_a_time_first_net_as_long_as_the_trial_batch_is_fitted():
    x = _inputs()
    found = fit(_built(_TimeFirst), x, x[:, :3].argmax(1), **SETTINGS)
    assert "note" in found.settings
