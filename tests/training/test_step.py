"""One gradient step: by what is moved and by nothing else."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuneparts.data.target import Classes
from tuneparts.hypers.hypers import Hypers
from tuneparts.training.step import gradient_step, gradients, loss_on


def net_and_batch() -> tuple[nn.Linear, tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    net = nn.Linear(3, 2)
    with torch.no_grad():
        net.weight.copy_(torch.randn(2, 3, generator=generator))
        net.bias.zero_()
    return net, (torch.randn(5, 3, generator=generator), torch.tensor([0, 1, 1, 0, 1]))


def test_a_step_is_zero_grad_backward_and_step() -> None:
    net, (x, y_B) = net_and_batch()
    other, _ = net_and_batch()
    mine, theirs = (torch.optim.SGD(n.parameters(), lr=0.3, momentum=0.9) for n in (net, other))
    for _ in range(3):
        found = loss_on(
            (x, y_B), net=net, hypers=Hypers(), target=Classes(), generator=torch.Generator()
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
            hypers=Hypers(),
            target=Classes(),
            generator=torch.Generator(),
            reduction=reduction,
        )
        for reduction in ("mean", "sum", "none")
    )
    assert each_B.shape == (5,)
    torch.testing.assert_close(each_B.sum(), total)
    torch.testing.assert_close(each_B.mean(), mean)
