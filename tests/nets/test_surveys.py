"""What unknown nets do, and how large nets are."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError
from tuneparts.nets import Mlp, MnistCnn, WideResNet
from tuneparts.nets.sizes import count_flops, count_parameters
from tuneparts.nets.surgery import reweighted, under_all_names
from tuneparts.nets.survey import check_logits, copied, draws_globally, is_lent, outputs, takeable

X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))


def _net():
    with seeding.isolated(0, "init"):
        return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 2))


def test_a_net_is_looked_at_without_being_changed():
    net = _net()
    net[1].eval()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    state = torch.get_rng_state()
    found = takeable(net, X, reweighted, ("weight",))
    assert found.layers == ("0", "2", "3")
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert not net[1].training
    assert net.training
    assert not any(module._forward_pre_hooks for module in net.modules())
    assert torch.equal(torch.get_rng_state(), state)


def test_layers_come_in_the_order_of_their_calls():
    class Backwards(nn.Module):
        def __init__(self):
            super().__init__()
            self.last, self.first = nn.Linear(3, 2), nn.Linear(4, 3)

        def forward(self, x):
            return self.last(self.first(x))

    found = takeable(Backwards(), X, reweighted, ("weight",))
    assert found.layers == ("first", "last")


def test_a_forward_of_its_own_and_a_further_parameter_are_seen():
    net = _net()
    net[0].forward = lambda x: x
    net[2].register_parameter("scale", nn.Parameter(torch.ones(1)))
    net[3].double()
    net[3].register_forward_pre_hook(lambda _, inputs: (inputs[0].double(),))
    assert takeable(net, X, reweighted, ("weight",)).left_out == {
        "0": "has a forward of its own",
        "1": "is a BatchNorm1d, not a plain Linear or Conv2d",
        "2": "has hooks or parameters of its own",
        "3": "has a weight of type float64, not float32",
    }


def test_lending_is_checked_by_other_weights():
    net = _net()
    net[2].weight = net[0].weight
    assert not is_lent(net, X, ["0.weight"], reweighted)
    assert is_lent(net, X, ["0.weight"], lambda n, t: reweighted(n, under_all_names(n, t)))
    assert is_lent(net, X, ["0.bias", "3.weight"], reweighted)
    assert not is_lent(net, X, ["0.bias"], lambda n, _: n)


def test_nets_that_cannot_be_run_or_copied_are_refused():
    with pytest.raises(ConfigError, match="must make logits"):
        outputs(nn.Flatten(0), X, training=False)
    with pytest.raises(ConfigError, match="gave tuple"):
        outputs(nn.LSTM(4, 2), X, training=False)
    with pytest.raises(ConfigError, match="has 2 for 3"):
        check_logits(_net(), X, 3)
    net = _net()
    net.held = net[0].weight * 2
    with pytest.raises(ConfigError, match=r"copyable by `copy.deepcopy`"):
        copied(net)


def test_attention_is_slow_in_a_look_and_fast_again_after_an_error():
    class Fails(nn.Module):
        def forward(self, x):
            assert not torch.backends.mha.get_fastpath_enabled()
            raise KeyError

    with pytest.raises(ConfigError, match="KeyError"):
        outputs(Fails(), X, training=False)
    assert torch.backends.mha.get_fastpath_enabled()


def test_a_net_that_draws_from_the_global_generator_is_seen_and_no_other():
    x = torch.ones(2, 3, 4, 4)
    assert draws_globally(nn.Sequential(nn.Dropout2d(0.5)), x)
    assert not draws_globally(nn.Sequential(nn.Conv2d(3, 3, 1)), x)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 9), max_size=4), st.integers(1, 9), st.integers(1, 9))
def test_mlp_by_hand(widths, num_in, num_classes):
    net = Mlp(widths=tuple(widths)).build((num_in,), num_classes)
    sizes = [num_in, *widths, num_classes]
    products = sum(a * b for a, b in pairwise(sizes))
    assert count_flops(net, (num_in,)) == 2 * products
    assert count_parameters(net) == products + sum(sizes[1:])


def test_mnist_cnn_by_hand():
    with torch.device("meta"):
        net = MnistCnn().build((1, 28, 28), 10)
    convolutions = 2 * (28 * 28 * 20 * 25 + 14 * 14 * 50 * 20 * 25)
    linear = 2 * (2450 * 500 + 500 * 50 + 50 * 10)
    assert count_parameters(net) == 520 + 25_050 + 1_225_500 + 25_050 + 510 == 1_276_630
    assert count_flops(net, (1, 28, 28)) == convolutions + linear


def test_a_shared_weight_counts_once_but_works_twice():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[1].weight = net[0].weight
    assert count_parameters(net) == 16 + 4 + 4
    assert count_flops(net, (4,)) == 2 * 2 * 4 * 4


def test_frozen_weights_do_not_count():
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    net[0].requires_grad_(False)
    assert count_parameters(net) == 8


def test_measuring_changes_nothing():
    net = WideResNet(depth=10).build((3, 8, 8), 10).double()
    net.stage1_block1.eval()
    modes = [m.training for m in net.modules()]
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    generator = torch.get_rng_state()
    count_flops(net, (3, 8, 8))
    assert [m.training for m in net.modules()] == modes
    assert all(torch.equal(tensor, state[name]) for name, tensor in net.state_dict().items())
    assert all(p.device.type == "cpu" for p in net.parameters())
    assert torch.equal(torch.get_rng_state(), generator)
