import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tuneparts.data.task import Task
from tuneparts.methods.ensembles.batch_ensemble import BatchEnsemble, BatchEnsembleLearner, RankOne
from tuneparts.methods.ensembles.config import BatchEnsembleConfig
from tuneparts.models import DigitsCnn, WideResNet
from tuneparts.training.learner import Context


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


def ensemble(net: nn.Module, *, member_norms: bool = False) -> BatchEnsemble:
    return BatchEnsemble(net, 3, member_norms=member_norms, flops=1, generator=generator())


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


def test_signs_make_members_differ_from_the_start() -> None:
    members = ensemble(DigitsCnn().build((1, 8, 8), 10))
    assert all(set(p.unique().tolist()) <= {-1.0, 1.0} for p in members.fast_weights())
    logits = members(torch.randn(2, 1, 8, 8, generator=generator()))
    assert not torch.allclose(logits[0], logits[1])


def test_fast_weights_may_start_around_one(toy: Task) -> None:
    context = Context(toy, 0, torch.device("cpu"))
    config = BatchEnsembleConfig(fast_start="normal", num_members=16)
    fast = torch.cat([p.flatten() for p in config.build(context).model.fast_weights()]).detach()
    assert len(fast) > 2000
    assert float(fast.mean()) == pytest.approx(1, abs=0.05)
    assert float(fast.std()) == pytest.approx(0.5, abs=0.05)


def test_the_rate_of_fast_weights_is_relative_to_that_of_the_others(toy: Task) -> None:
    config = BatchEnsembleConfig(
        optimiser={"kind": "sgd", "lr": 0.1, "momentum": 0}, fast_lr_factor=0.25, batch_size=8
    )
    learner = BatchEnsembleLearner(config, Context(toy, 0, torch.device("cpu")))
    before = {name: p.detach().clone() for name, p in learner.model.named_parameters()}
    learner.step()
    fast = {id(p) for p in learner.model.fast_weights()}
    for name, parameter in learner.model.named_parameters():
        rate = 0.1 * (0.25 if id(parameter) in fast else 1)
        torch.testing.assert_close(before[name] - parameter, rate * parameter.grad)


def test_own_norms_see_their_member_only() -> None:
    members = ensemble(WideResNet(depth=10).build((1, 8, 8), 10), member_norms=True)
    x = torch.randn(6, 1, 8, 8, generator=generator())
    members(x)
    norms = members.net.norm.norms
    assert len(norms) == 3
    assert not torch.allclose(norms[0].running_mean, norms[1].running_mean)


def test_fast_weights_learn_slower_and_are_not_decayed(toy: Task) -> None:
    config = BatchEnsembleConfig().replaced({"optimiser.weight_decay": 0.1})
    learner = BatchEnsembleLearner(config, Context(toy, 0, torch.device("cpu")))
    fast = {id(p) for p in learner.model.fast_weights()}
    groups = learner.optimiser.param_groups
    assert {id(p) for p in groups[-1]["params"]} == fast
    assert (groups[-1]["lr_factor"], groups[-1]["weight_decay"]) == (0.5, 0.0)
    seen = [id(p) for group in groups for p in group["params"]]
    assert sorted(seen) == sorted(id(p) for p in learner.model.parameters())
    assert groups[0]["weight_decay"] == 0.1
