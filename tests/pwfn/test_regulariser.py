import copy
import math

import pytest
import torch
from torch import Tensor, nn

from tuneparts.pwfn import regulariser, sigma
from tuneparts.pwfn.conversion import layers, tensors, to_gaussian
from tuneparts.pwfn.gaussian import sampled

CUTOFF = 0.05


@pytest.fixture
def gaussian(net: nn.Sequential) -> nn.Sequential:
    to_gaussian(net)
    sigma.initialise(net)
    with torch.no_grad():
        net[6].weight.sigma[0] = 0.06
        net[6].weight.fixed[1] = True
    return net


def loss_of(net: nn.Sequential, x_BCHW: Tensor) -> Tensor:
    with sampled(net, torch.Generator().manual_seed(0)):
        return net(x_BCHW).square().sum()


@pytest.mark.parametrize("form", ["squared", "hinge"])
def test_as_a_loss_and_as_a_gradient_it_is_the_same(
    gaussian: nn.Sequential, x_BCHW: Tensor, form: regulariser.Form
) -> None:
    other = copy.deepcopy(gaussian)
    loss_of(gaussian, x_BCHW).backward()
    regulariser.pull(gaussian, 0.3, CUTOFF, form)
    (loss_of(other, x_BCHW) + 0.3 * regulariser.penalty(other, CUTOFF, form)).backward()
    for name, tensor in tensors(gaussian).items():
        expected = tensors(other)[name].sigma.grad
        torch.testing.assert_close(tensor.sigma.grad, expected, rtol=1e-5, atol=1e-6)


def test_the_pull_is_alpha_eps_times_the_distance_to_the_cutoff(
    gaussian: nn.Sequential, x_BCHW: Tensor
) -> None:
    loss_of(gaussian, x_BCHW).backward()
    before = {name: tensor.sigma.grad.clone() for name, tensor in tensors(gaussian).items()}
    regulariser.pull(gaussian, 0.5, CUTOFF)
    for name, tensor in tensors(gaussian).items():
        change = before[name] - tensor.sigma.grad
        if name.endswith("bias"):
            assert not change.any()
            continue
        expected = 0.5 * tensor.eps.abs() * (CUTOFF - tensor.sigma).clamp(min=0) * ~tensor.fixed
        torch.testing.assert_close(change, expected, rtol=1e-3, atol=2e-5)
    last = before["6.weight"] - gaussian[6].weight.sigma.grad
    assert not last[0].any()
    assert not last[1].any()
    assert last[2].any()


def test_hinge_pulls_with_constant_strength(gaussian: nn.Sequential, x_BCHW: Tensor) -> None:
    loss_of(gaussian, x_BCHW).backward()
    for layer in layers(gaussian).values():
        layer.weight.sigma.grad.zero_()
    regulariser.pull(gaussian, 0.25, CUTOFF, "hinge")
    grad = gaussian[6].weight.sigma.grad
    assert (grad[2:] == -0.25).all()
    assert not grad[:2].any()


def test_no_draw_no_squared_pull(gaussian: nn.Sequential, x_BCHW: Tensor) -> None:
    gaussian(x_BCHW).sum().backward()
    regulariser.pull(gaussian, 1.0, CUTOFF)
    assert all(tensor.sigma.grad is None for tensor in tensors(gaussian).values())
    with pytest.raises(RuntimeError, match="sampled"):
        regulariser.penalty(gaussian, CUTOFF)


@pytest.mark.parametrize("curvature", [0.1, 1.0])
def test_where_deviations_settle_on_a_quadratic(curvature: float) -> None:
    # Many independent weights with loss h w^2 / 2 each: their mean deviation has little noise.
    net = nn.Sequential(nn.Linear(2000, 1, bias=False)).double()
    nn.init.zeros_(net[0].weight)
    to_gaussian(net)
    sigma.initialise(net, 0.02)
    weight, alpha, lr = net[0].weight, 0.25, 0.05
    generator = torch.Generator().manual_seed(0)
    kept = []
    for step in range(800):
        with sampled(net, generator):
            loss = curvature / 2 * weight().square().sum()
        loss.backward()
        regulariser.pull(net, alpha, CUTOFF)
        with torch.no_grad():
            weight.sigma.sub_(weight.sigma.grad, alpha=lr)
        net.zero_grad()
        if step >= 400:
            kept.append(weight.sigma.mean().item())
    kappa = alpha * math.sqrt(2 / math.pi)
    expected = CUTOFF * kappa / (kappa + curvature)
    assert sum(kept) / len(kept) == pytest.approx(expected, rel=0.05)


def test_exposure_predicts_a_flat_weight() -> None:
    steps, lr, alpha = 500, 0.01, 0.2
    x = regulariser.exposure(lr=lr, momentum=0.0, alpha=alpha, steps=steps)
    start = 0.002
    value = start
    for _ in range(steps):
        value += lr * alpha * math.sqrt(2 / math.pi) * (CUTOFF - value)
    assert value == pytest.approx(CUTOFF - (CUTOFF - start) * math.exp(-x), rel=1e-3)
    assert regulariser.exposure(lr=lr, momentum=0.9, alpha=alpha, steps=50) == pytest.approx(x)
