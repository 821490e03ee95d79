import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from tuneparts.nets import MobileNetV2, NetConfig, WideResNet
from tuneparts.nets.surgery import give_up, reweighted, standalone


def test_a_given_weight_is_used_and_learns_through_its_source() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    give_up(net, ["0.weight"])
    assert [name for name, _ in net.named_parameters()] == ["0.bias", "2.weight", "2.bias"]
    source = torch.ones(3, 2, requires_grad=True)
    x = torch.ones(4, 2)
    out = reweighted(net, {"0.weight": 2 * source})(x)
    hidden = F.linear(x, 2 * source, net[0].bias)
    torch.testing.assert_close(out, net[2](hidden.relu()))
    out.sum().backward()
    assert source.grad is not None
    assert net[2].weight.grad is not None
    assert "0.weight" not in net.state_dict()


def test_nothing_is_left_behind() -> None:
    net = nn.Sequential(nn.Linear(2, 3))
    own = net[0].weight
    reweighted(net, {"0.weight": torch.ones(3, 2)})(torch.ones(1, 2))
    assert net[0].weight is own
    give_up(net, ["0.weight"])
    reweighted(net, {"0.weight": torch.ones(3, 2)})(torch.ones(1, 2))
    with pytest.raises(AttributeError):
        net(torch.ones(1, 2))


@pytest.mark.parametrize("config", [WideResNet(depth=10), MobileNetV2(width=0.25)], ids=repr)
@pytest.mark.parametrize("is_training", [True, False])
def test_as_a_functional_call_on_one_thread(config: NetConfig, is_training: bool) -> None:
    x = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    ours, theirs = (config.build((1, 8, 8), 10).train(is_training) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    weights = {
        name: torch.randn(p.shape, generator=torch.Generator().manual_seed(1))
        for name, p in ours.named_parameters()
    }
    assert torch.equal(reweighted(ours, weights)(x), functional_call(theirs, weights, (x,)))
    # Running statistics are the net's own, and both ways move them.
    for name, buffer in ours.named_buffers():
        assert torch.equal(buffer, theirs.get_buffer(name)), name


def test_hooks_and_layers_under_two_names_stay() -> None:
    layer = nn.Linear(2, 2)
    net = nn.Sequential(layer, layer)
    seen: list[Tensor] = []
    layer.register_forward_hook(lambda _m, _i, out: seen.append(out))
    twice = reweighted(net, {"0.weight": torch.eye(2), "0.bias": torch.ones(2)})
    assert torch.equal(twice(torch.zeros(1, 2)), torch.full((1, 2), 2.0))
    assert len(seen) == 2


class Meeting(nn.Module):
    """Lets the other thread run between two layers."""

    def forward(self, x: Tensor) -> Tensor:
        """As it came."""
        time.sleep(0.002)
        return x


def test_two_threads_run_one_net_under_two_sets_of_weights() -> None:
    net = nn.Sequential(nn.Linear(3, 3), Meeting(), nn.Linear(3, 3), Meeting(), nn.Linear(3, 3))
    x = torch.ones(1, 3)
    weights = [{f"{i}.weight": torch.full((3, 3), k) for i in (0, 2, 4)} for k in (0.5, 2.0)]
    expected = [reweighted(net, given)(x) for given in weights]

    def wrong(k: int) -> Iterator[int]:
        for _ in range(20):
            if not torch.equal(reweighted(net, weights[k])(x), expected[k]):
                yield k

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda k: list(wrong(k)), (0, 1))) == [[], []]


def test_a_standalone_net_owns_its_weights() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    give_up(net, ["0.weight"])
    given = torch.ones(3, 2)
    own = standalone(net, {"0.weight": given})
    assert set(own.state_dict()) == {"0.weight", *net.state_dict()}
    given.zero_()
    assert own[0].weight.sum() == 6
    assert own[0].weight.requires_grad
    own(torch.ones(4, 2))
    assert net[1].num_batches_tracked == 0
