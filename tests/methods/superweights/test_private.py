import pytest
import torch
from torch import nn

from tuneparts.core.errors import ConfigError
from tuneparts.methods.superweights import fit
from tuneparts.methods.superweights.fitted import unshared_weights

TOKENS = torch.randint(0, 11, (60, 7), generator=torch.Generator().manual_seed(0))
LABELS = TOKENS[:, 0] % 3
SETTINGS = {
    "passes": 2,
    "batch_size": 20,
    "members": 2,
    "sharing": {"clusters": "depth", "beta": None},
}
EMBEDDING, LSTM, MIX = 11 * 8, 4 * 16 * (8 + 16), 16 * 8


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(11, 8), nn.LSTM(8, 16, batch_first=True)
        self.mix, self.norm, self.head = nn.Linear(16, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.norm(self.mix(self.lstm(self.embed(x))[0][:, -1]).relu()))


def test_the_budget_counts_layers_that_cannot_share():
    unshared = 2 * (EMBEDDING + LSTM)
    ensemble = fit(Recurrent, TOKENS, LABELS, budget=unshared + 2 * MIX, **SETTINGS)
    assert ensemble.sizes.unshared == unshared
    assert ensemble.sizes.templates == 2 * MIX
    tight = fit(Recurrent, TOKENS, LABELS, budget=unshared + 2 * MIX - 1, **SETTINGS)
    assert tight.sizes.templates == MIX


def test_a_budget_that_private_layers_exceed_is_refused_by_their_names():
    message = r"of 300 also counts 3248 .*: `lstm.weight_hh_l0` of member 0"
    with pytest.raises(ConfigError, match=message):
        fit(Recurrent, TOKENS, LABELS, budget=300, **SETTINGS)


def test_a_budget_of_the_allocation_counts_templates_alone():
    ensemble = fit(Recurrent, TOKENS, LABELS, allocation={"budget": MIX}, **SETTINGS)
    assert ensemble.sizes.templates == MIX


@pytest.mark.parametrize("budget", [0, -5, "many", 3.5, float("inf")])
def test_a_budget_that_is_no_positive_whole_number_is_refused_as_such(budget):
    with pytest.raises(ConfigError, match=rf"budget.*{budget}"):
        fit(Recurrent, TOKENS, LABELS, budget=budget, **SETTINGS)


def test_heads_norms_biases_and_frozen_weights_are_not_counted_and_tied_ones_once():
    net = Recurrent()
    net.norm = nn.LayerNorm((1, 8))
    net.again = nn.Embedding(11, 8)
    net.again.weight = net.embed.weight
    net.lstm.weight_hh_l0.requires_grad_(False)
    assert unshared_weights(net, ["mix"], ["head"]) == {
        "embed.weight": EMBEDDING,
        "lstm.weight_ih_l0": 4 * 16 * 8,
    }


def test_a_shared_layer_under_two_names_is_not_counted():
    net = Recurrent()
    net.alias = net.mix
    assert "alias.weight" not in unshared_weights(net, ["mix"], ["head"])
