import pytest
import torch
from torch import nn

from tuneparts.pwfn import snapshot as room
from tuneparts.pwfn.conversion import layers, to_gaussian
from tuneparts.pwfn.sigma import initialise
from tuneparts.pwfn.snapshot import columns, snapshot


def test_small_layers_are_shown_whole(net: nn.Sequential) -> None:
    to_gaussian(net)
    initialise(net)
    taken = snapshot(net, seed=0)
    assert list(taken) == list(layers(net))
    for name, layer in layers(net).items():
        assert torch.equal(taken[name][0], layer.weight.mu.flatten())
        assert torch.equal(taken[name][1], layer.weight.sigma.flatten())


def test_the_same_weights_are_shown_each_time(
    net: nn.Sequential, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MAX_SHOWN", 7)
    to_gaussian(net)
    layer = layers(net)["6"].weight
    with torch.no_grad():
        layer.mu.copy_(torch.arange(layer.mu.numel()).view_as(layer.mu))
        before = snapshot(net, seed=3)["6"]
        layer.mu += 1000
    after = snapshot(net, seed=3)["6"]
    assert before.shape == (2, 7)
    assert len(before[0].unique()) == 7
    assert torch.equal(after[0], before[0] + 1000)
    assert not torch.equal(snapshot(net, seed=4)["6"][0], after[0])


def test_snapshots_as_a_table() -> None:
    first, second = torch.tensor([[1.0, 2.0], [0.25, 0.5]]), torch.tensor([[3.0], [0.125]])
    assert columns({"then": {"a": first, "b": second}, "now": {"b": second}}) == {
        "layer": ["a", "a", "b", "b"],
        "moment": ["then", "then", "then", "now"],
        "mu": [1.0, 2.0, 3.0, 3.0],
        "sigma": [0.25, 0.5, 0.125, 0.125],
    }
