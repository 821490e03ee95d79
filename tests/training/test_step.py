"""One gradient step: by what is moved and by nothing else."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuneparts.data.target import Classes
from tuneparts.hypers import Hypers
from tuneparts.hypers.hypers import HyperModule
from tuneparts.training.step import gradient_step, gradients, loss_on, recalibrate


def net_and_batch() -> tuple[nn.Linear, tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    net = nn.Linear(3, 2)
    with torch.no_grad():
        net.weight.copy_(torch.randn(2, 3, generator=generator))
        net.bias.zero_()
    return net, (torch.randn(5, 3, generator=generator), torch.tensor([0, 1, 1, 0, 1]))


def plain(net: nn.Module) -> HyperModule:
    return Hypers().build(learnable=False, net=net, in_shape=(3,))


def test_a_step_is_zero_grad_backward_and_step() -> None:
    net, (x, y_B) = net_and_batch()
    other, _ = net_and_batch()
    mine, theirs = (torch.optim.SGD(n.parameters(), lr=0.3, momentum=0.9) for n in (net, other))
    for _ in range(3):
        found = loss_on(
            (x, y_B), net=net, hypers=plain(net), target=Classes(), generator=torch.Generator()
        )
        gradient_step(found, mine)
        theirs.zero_grad()
        expected = F.cross_entropy(other(x), y_B)
        expected.backward()
        theirs.step()
        assert torch.equal(found, expected)
    assert torch.equal(net.weight, other.weight)
    assert torch.equal(net.bias, other.bias)


def test_what_no_optimiser_holds_gets_no_gradient() -> None:
    net, (x, y_B) = net_and_batch()
    shift = nn.Parameter(torch.zeros(2))
    objective = F.cross_entropy(net(x) + shift, y_B)
    gradient_step(objective, torch.optim.SGD([shift], lr=0.1))
    assert net.weight.grad is None
    assert shift.grad is not None


def test_old_gradients_are_forgotten_and_unused_or_frozen_leaves_have_none() -> None:
    used, unused, frozen = (nn.Parameter(torch.ones(1)) for _ in range(3))
    frozen.requires_grad_(False)
    for leaf in (used, unused, frozen):
        leaf.grad = torch.full((1,), 7.0)
    found = gradients((3 * used * frozen).sum(), [used, unused, frozen])
    assert found[0] is not None
    assert found[0].item() == 3.0
    assert found[1:] == [None, None]


def test_examples_are_averaged_summed_or_kept_apart() -> None:
    net, batch = net_and_batch()
    mean, total, each_B = (
        loss_on(
            batch,
            net=net,
            hypers=plain(net),
            target=Classes(),
            generator=torch.Generator(),
            reduction=reduction,
        )
        for reduction in ("mean", "sum", "none")
    )
    assert each_B.shape == (5,)
    torch.testing.assert_close(each_B.sum(), total)
    torch.testing.assert_close(each_B.mean(), mean)


def test_statistics_are_plain_averages_over_batches() -> None:
    net = nn.Sequential(nn.Dropout(0.9), nn.BatchNorm1d(3, momentum=0.3)).train()
    net[1].running_mean.fill_(9.0)
    generator = torch.Generator().manual_seed(0)
    batches = [2 + torch.randn(10, 3, generator=generator) for _ in range(4)]
    recalibrate(net, batches, net)
    mean = torch.stack([x.mean(0) for x in batches]).mean(0)
    variance = torch.stack([x.var(0) for x in batches]).mean(0)
    torch.testing.assert_close(net[1].running_mean, mean)
    torch.testing.assert_close(net[1].running_var, variance)
    assert net[1].momentum == 0.3
    assert net.training
    assert net[0].training
    net.eval()
    recalibrate(net, batches, net)
    assert not net[1].training


def test_weights_do_not_change() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    x_BCHW = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    recalibrate(net, [x_BCHW], net)
    for name, parameter in net.named_parameters():
        assert torch.equal(parameter, before[name])
        assert parameter.grad is None


def test_a_net_without_batch_norm_is_not_run() -> None:
    def refuse(x: Tensor) -> Tensor:
        raise AssertionError

    recalibrate(nn.Sequential(nn.Linear(2, 2)), [torch.zeros(1, 2)], refuse)
    untracked = nn.BatchNorm1d(2, track_running_stats=False)
    recalibrate(untracked, [torch.zeros(1, 2)], refuse)
