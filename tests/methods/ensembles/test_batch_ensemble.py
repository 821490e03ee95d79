from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tuneparts.data.task import Task
from tuneparts.methods.ensembles._batch_ensemble import BatchEnsembleNets, RankOne
from tuneparts.methods.ensembles.config import BatchEnsemble
from tuneparts.nets import DigitsCnn, WideResNet

Start = Callable[..., Any]


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_equals_the_weight_times_a_rank_one_matrix(groups: int) -> None:
    conv = nn.Conv2d(4, 6, 3, padding=1, groups=groups).double()
    bias = conv.bias.detach().clone()
    layer = RankOne(conv, 3, generator()).double()
    with torch.no_grad():
        layer.r_MC.normal_(generator=generator())
        layer.s_MC.normal_(generator=generator())
    x = torch.randn(3, 2, 4, 5, 5, dtype=torch.float64, generator=generator())
    ours = layer(x.flatten(0, 1)).unflatten(0, (3, 2))
    for m in range(3):
        r = layer.r_MC[m].view(groups, 1, -1, 1, 1)
        w = conv.weight.unflatten(0, (groups, -1)) * r
        w = w.flatten(0, 1) * layer.s_MC[m].view(-1, 1, 1, 1)
        torch.testing.assert_close(ours[m], F.conv2d(x[m], w, bias, padding=1, groups=groups))


def test_a_linear_layer_equals_the_weight_times_a_rank_one_matrix() -> None:
    linear = nn.Linear(4, 3).double()
    bias = linear.bias.detach().clone()
    layer = RankOne(linear, 2, generator()).double()
    x = torch.randn(2, 5, 4, dtype=torch.float64, generator=generator())
    for m in range(2):
        w = linear.weight * layer.s_MC[m][:, None] * layer.r_MC[m]
        torch.testing.assert_close(layer(x.flatten(0, 1)).view(2, 5, 3)[m], F.linear(x[m], w, bias))


def ensemble(net: nn.Module, *, member_norms: bool = False) -> BatchEnsembleNets:
    return BatchEnsembleNets(net, 3, member_norms=member_norms, flops=1, generator=generator())


def test_members_with_fast_weights_of_one_are_the_net() -> None:
    net = DigitsCnn().build((1, 8, 8), 10).eval()
    x = torch.randn(2, 1, 8, 8, generator=generator())
    expected = net(x)
    members = ensemble(net)
    with torch.no_grad():
        for parameter in members.fast_weights():
            parameter.fill_(1)
    for logits in members(x):
        torch.testing.assert_close(logits, expected)


def test_own_norms_see_their_member_only() -> None:
    members = ensemble(WideResNet(depth=10).build((1, 8, 8), 10), member_norms=True)
    x = torch.randn(6, 1, 8, 8, generator=generator())
    members(x)
    norms = members.net.norm.norms
    assert len(norms) == 3
    assert not torch.allclose(norms[0].running_mean, norms[1].running_mean)


def test_members_differ_by_signs_at_first_or_by_weights_around_one(start: Start, toy: Task) -> None:
    signs = start(BatchEnsemble).model
    assert {value for p in signs.fast_weights() for value in p.unique().tolist()} == {-1.0, 1.0}
    logits = signs(torch.randn(2, *toy.in_shape, generator=generator()))
    assert not torch.allclose(logits[0], logits[1])


def test_fast_weights_may_start_around_one(start: Start) -> None:
    model = start(BatchEnsemble, fast_start="normal", num_members=16).model
    fast = torch.cat([p.flatten() for p in model.fast_weights()]).detach()
    assert len(fast) > 2000
    assert float(fast.mean()) == pytest.approx(1, abs=0.05)
    assert float(fast.std()) == pytest.approx(0.5, abs=0.05)


def test_fast_weights_have_a_rate_of_their_own_and_no_decay(start: Start) -> None:
    optimiser = {"kind": "sgd", "lr": 0.1, "momentum": 0, "weight_decay": 0.1}
    learner = start(BatchEnsemble, optimiser=optimiser, fast_lr_factor=0.25)
    before = {name: p.detach().clone() for name, p in learner.model.named_parameters()}
    learner.step()
    fast = {id(p) for p in learner.model.fast_weights()}
    *others, last = learner.optimiser.param_groups
    assert {id(p) for p in last["params"]} == fast
    decayed = {id(p) for group in others if group["weight_decay"] for p in group["params"]}
    assert decayed
    for name, parameter in learner.model.named_parameters():
        decay = 0.1 if id(parameter) in decayed else 0.0
        rate = 0.1 * (0.25 if id(parameter) in fast else 1)
        expected = rate * (parameter.grad + decay * before[name])
        torch.testing.assert_close(before[name] - parameter, expected)
