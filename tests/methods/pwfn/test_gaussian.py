import copy

import pytest
import torch
from torch import Tensor, nn

from tuneparts.methods.pwfn import _sigma
from tuneparts.methods.pwfn._gaussian import FLOOR, Gaussians, Lent

OPTIMISERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def backward(net: nn.Module, gaussians: Gaussians, x_BCHW: Tensor, seed: int = 0) -> Tensor:
    """Leave gradients of a draw in means and deviations; return the draw's eps."""
    draw = gaussians.draw(generator(seed))
    Lent(net, draw.values)(x_BCHW).square().mean().backward()
    gaussians.take_gradients(draw)
    return draw.eps_N


def test_draws_have_the_mean_and_deviation(gaussians: Gaussians) -> None:
    noise = generator()
    with torch.no_grad():
        gaussians.sigma[0::2] = 0.3
        gaussians.sigma[1] = FLOOR
    draws = torch.stack(
        [torch.cat([v.flatten() for v in gaussians.draw(noise).values.values()])
         for _ in range(2000)]
    ).double()  # fmt: skip
    deviation = gaussians.sigma.detach().clamp(min=FLOOR).double()
    mean_error = (draws.mean(0) - gaussians.means()).abs()
    # Five standard errors of a mean, and of a standard deviation, over 2000 draws.
    assert (mean_error <= 5 * deviation / 2000**0.5 + 1e-7).all()
    assert ((draws.std(0) / deviation - 1).abs()[2:] < 5 / 4000**0.5).all()
    assert (draws[:, 1] - gaussians.means()[1]).abs().max() < 1e-7


def test_gradients_do_not_depend_on_the_memory_format(
    net: nn.Sequential, gaussians: Gaussians, x_BCHW: Tensor
) -> None:
    other = copy.deepcopy(net).to(memory_format=torch.channels_last)
    weight = other[-1].weight.detach()
    other[-1].weight = nn.Parameter(weight.t().contiguous().t())
    same = Gaussians(other, gaussians.names)
    fixed_N = torch.arange(len(gaussians.sigma)) % 3 == 0
    for one in (gaussians, same):
        one.write(one.means(), gaussians.sigma.detach().clone(), fixed_N)
    backward(net, gaussians, x_BCHW)
    backward(other, same, x_BCHW)
    assert gaussians.sigma.grad is not None
    assert same.sigma.grad is not None
    torch.testing.assert_close(same.sigma.grad, gaussians.sigma.grad, rtol=1e-4, atol=1e-7)
    for name, mu in gaussians.mus.items():
        torch.testing.assert_close(same.mus[name].grad, mu.grad, rtol=1e-4, atol=1e-7)


def test_the_seed_decides_steps_differ_and_the_net_computes_as_before(
    net: nn.Sequential, gaussians: Gaussians, x_BCHW: Tensor
) -> None:
    net.eval()
    before, state = net(x_BCHW), torch.get_rng_state()

    def twice(seed: int) -> tuple[Tensor, Tensor]:
        noise = generator(seed)
        one, other = (Lent(net, gaussians.draw(noise).values)(x_BCHW) for _ in range(2))
        return one, other

    first, second = twice(0)
    again, _ = twice(0)
    other, _ = twice(1)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert not torch.equal(first, other)
    with pytest.raises(RuntimeError):
        Lent(net, gaussians.draw(generator()).values)(torch.zeros(1))
    assert torch.equal(net(x_BCHW), before)
    assert torch.equal(torch.get_rng_state(), state)


def test_gradients_of_deviations_are_draws_times_those_of_means(
    net: nn.Sequential, gaussians: Gaussians, x_BCHW: Tensor
) -> None:
    eps_N = backward(net, gaussians, x_BCHW)
    slopes = torch.cat([mu.grad.flatten() for mu in gaussians.mus.values()])
    assert torch.equal(gaussians.sigma.grad, eps_N * slopes)
    # And they are those of autograd through w = mu + eps * sigma.
    leaf_N = gaussians.sigma.detach().clone().requires_grad_()
    parts, noise = gaussians.parts(leaf_N), gaussians.parts(eps_N)
    values = {n: mu.detach() + noise[n] * parts[n] for n, mu in gaussians.mus.items()}
    Lent(net, values)(x_BCHW).square().mean().backward()
    torch.testing.assert_close(gaussians.sigma.grad, leaf_N.grad, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_fixed_entries_are_bit_identical_and_free_ones_move(
    net: nn.Sequential, gaussians: Gaussians, x_BCHW: Tensor, name: str
) -> None:
    optimiser = OPTIMISERS[name]([*net.parameters(), gaussians.sigma])

    def step(seed: int) -> None:
        optimiser.zero_grad()
        backward(net, gaussians, x_BCHW, seed)
        optimiser.step()
        gaussians.restore_fixed()

    step(0)  # momentum of entries that are fixed only later
    mu_N, sigma_N = gaussians.means().round(decimals=1), gaussians.sigma.detach().clone()
    mask_N = torch.arange(len(mu_N)) % 3 == 0
    sigma_N[mask_N] = FLOOR
    gaussians.write(mu_N, sigma_N, mask_N)
    for seed in range(1, 5):
        step(seed)
    assert torch.equal(gaussians.means()[mask_N], mu_N[mask_N])
    assert torch.equal(gaussians.sigma[mask_N], sigma_N[mask_N])
    moved = gaussians.means()[~mask_N] != mu_N[~mask_N]
    assert moved.double().mean() > 0.95
    assert (gaussians.sigma[~mask_N] >= FLOOR).all()


def test_free_deviations_stay_at_the_floor_or_above(gaussians: Gaussians) -> None:
    with torch.no_grad():
        gaussians.sigma.fill_(-1.0)
    gaussians.restore_fixed()
    assert (gaussians.sigma == FLOOR).all()


def test_frozen_weights_stay_frozen(net: nn.Sequential, x_BCHW: Tensor) -> None:
    net[6].weight.requires_grad_(False)
    gaussians = Gaussians(net, ["6.weight", "6.bias"])
    _sigma.initialise(gaussians, 0.1)
    before, start = gaussians.means(), gaussians.sigma.detach().clone()
    optimiser = OPTIMISERS["sgd"]([*net.parameters(), gaussians.sigma])
    backward(net, gaussians, x_BCHW)
    optimiser.step()
    gaussians.restore_fixed()
    num = net[6].weight.numel()
    assert torch.equal(gaussians.means()[:num], before[:num])
    assert torch.equal(gaussians.sigma[:num], start[:num])
    assert not torch.equal(gaussians.means()[num:], before[num:])


def test_masked_gradients_are_zero_where_fixed_only(
    net: nn.Sequential, gaussians: Gaussians, x_BCHW: Tensor
) -> None:
    backward(net, gaussians, x_BCHW)
    before = net[6].weight.grad.clone()
    fixed_N = gaussians.fixed.clone()
    gaussians.parts(fixed_N)["6.weight"][0] = True
    gaussians.write(gaussians.means(), gaussians.sigma.detach().clone(), fixed_N)
    net.zero_grad()
    backward(net, gaussians, x_BCHW)
    assert not net[6].weight.grad[0].any()
    assert not gaussians.parts(gaussians.sigma.grad)["6.weight"][0].any()
    assert torch.equal(net[6].weight.grad[1:], before[1:])
