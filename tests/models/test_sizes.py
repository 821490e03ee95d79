from itertools import pairwise

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tuneparts.models import Mlp, MnistCnn, WideResNet
from tuneparts.models.sizes import count_flops, count_parameters


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


def test_a_lone_layer_is_a_net_too():
    assert count_flops(nn.Linear(4, 3), (4,)) == 24


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
