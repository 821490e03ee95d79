import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tuneparts.training.members.lending import give_up_weights, lent


def test_a_lent_weight_is_used_and_learns_through_its_source() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    give_up_weights(net, ["0"])
    assert [name for name, _ in net.named_parameters()] == ["0.bias", "2.weight", "2.bias"]
    source = torch.ones(3, 2, requires_grad=True)
    x = torch.ones(4, 2)
    with lent(net, {"0": 2 * source}):
        out = net(x)
        hidden = F.linear(x, 2 * source, net[0].bias)
    torch.testing.assert_close(out, net[2](hidden.relu()))
    out.sum().backward()
    assert source.grad is not None
    assert "0.weight" not in net.state_dict()


def test_nothing_is_left_behind_even_after_an_error() -> None:
    net = nn.Sequential(nn.Linear(2, 3))
    give_up_weights(net, ["0"])
    with pytest.raises(RuntimeError, match="stop"), lent(net, {"0": torch.ones(3, 2)}):
        raise RuntimeError("stop")
    with pytest.raises(AttributeError):
        net(torch.ones(1, 2))
