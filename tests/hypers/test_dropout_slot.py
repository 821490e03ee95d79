import copy

import torch
from torch import nn
from torch.func import functional_call

from tuneparts.hypers.concrete import ConcreteDropout, DropoutSlot, dropping


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small_net() -> nn.Sequential:
    net = nn.Sequential(nn.Linear(4, 8), DropoutSlot(0, 0.0), nn.Linear(8, 3), DropoutSlot(1, 0.0))
    with torch.no_grad():
        for number, parameter in enumerate(net.parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=stream(number)))
    return net


def test_outside_a_drawing_block_a_slot_passes_on_what_came_in():
    h = torch.rand(3)
    assert DropoutSlot(0, 0.5).train()(h) is h


def test_inside_each_slot_drops_by_its_own_rate_from_the_given_generator():
    net, dropout, x = small_net(), ConcreteDropout([0.2, 0.6], learnable=True), torch.ones(5, 4)
    with dropping(dropout, stream()) as seen:
        found = net(x)
    draws = stream()
    hidden = dropout(net[0](x), 0, draws)
    wanted = dropout(net[2](hidden), 1, draws)
    assert torch.equal(found, wanted)
    assert seen.num_reads == 2
    assert torch.equal(net(x), net[2](net[0](x)))


def test_rates_are_no_parameters_of_the_net_but_get_its_gradient():
    net, dropout = small_net(), ConcreteDropout([0.2, 0.6], learnable=True)
    assert len(list(net.parameters())) == 4
    with dropping(dropout, stream()):
        net(torch.ones(5, 4)).square().sum().backward()
    assert (dropout.rates.raw.grad.abs() > 0).all()


def test_copies_and_functional_calls_hear_the_same_block():
    net, dropout, x = small_net(), ConcreteDropout([0.2, 0.6], learnable=True), torch.ones(5, 4)
    with dropping(dropout, stream()):
        wanted = net(x)
    with dropping(dropout, stream()):
        assert torch.equal(copy.deepcopy(net)(x), wanted)
    with dropping(dropout, stream()):
        assert torch.equal(functional_call(net, dict(net.named_parameters()), (x,)), wanted)


def test_the_block_ends_also_after_an_error():
    slot = DropoutSlot(0, 0.0)
    try:
        with dropping(ConcreteDropout([0.5], learnable=False), stream()):
            raise KeyError
    except KeyError:
        pass
    h = torch.ones(4)
    assert slot(h) is h
