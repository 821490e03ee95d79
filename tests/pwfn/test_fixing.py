import copy

import pytest
import torch
from torch import Tensor, nn

from tuneparts.pwfn import fixing, sigma
from tuneparts.pwfn.conversion import tensors, to_gaussian
from tuneparts.pwfn.gaussian import FLOOR, sampled

OPTIMISERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}


@pytest.fixture
def gaussian(net: nn.Sequential) -> nn.Sequential:
    to_gaussian(net)
    sigma.initialise(net, 0.02)
    return net


@pytest.mark.parametrize("name", OPTIMISERS)
def test_fixed_entries_are_bit_identical_and_free_ones_move(
    gaussian: nn.Sequential, x_BCHW: Tensor, name: str
) -> None:
    optimiser = OPTIMISERS[name](gaussian.parameters())
    noise = torch.Generator().manual_seed(0)

    def step() -> None:
        with sampled(gaussian, noise):
            loss = gaussian(x_BCHW).square().mean()
        optimiser.zero_grad()
        loss.backward()
        fixing.mask_gradients(gaussian)
        with fixing.held(gaussian):
            optimiser.step()

    step()  # momentum of entries that are fixed only later
    mask_N = torch.arange(len(fixing.means(gaussian))) % 3 == 0
    mu_N, sigma_N = fixing.means(gaussian).round(decimals=1), fixing.sigmas(gaussian)
    sigma_N[mask_N] = 0.0
    fixing.write(gaussian, mu_N, sigma_N, mask_N)
    for _ in range(4):
        step()
    assert torch.equal(fixing.means(gaussian)[mask_N], mu_N[mask_N])
    assert torch.equal(fixing.sigmas(gaussian)[mask_N], sigma_N[mask_N])
    moved = fixing.means(gaussian)[~mask_N] != mu_N[~mask_N]
    assert moved.double().mean() > 0.95
    assert (fixing.sigmas(gaussian)[~mask_N] >= FLOOR).all()


def test_free_deviations_stay_at_the_floor_or_above(gaussian: nn.Sequential) -> None:
    with fixing.held(gaussian), torch.no_grad():
        for tensor in tensors(gaussian).values():
            tensor.sigma.fill_(-1.0)
    assert (fixing.sigmas(gaussian) == FLOOR).all()


def test_write_is_the_inverse_of_reading(gaussian: nn.Sequential) -> None:
    expected = copy.deepcopy(gaussian.state_dict())
    mu_N, sigma_N, fixed_N = (
        fixing.means(gaussian),
        fixing.sigmas(gaussian),
        fixing.fixed(gaussian),
    )
    fixing.write(gaussian, -mu_N, 2 * sigma_N, ~fixed_N)
    assert torch.equal(fixing.means(gaussian), -mu_N)
    assert fixing.fixed(gaussian).all()
    fixing.write(gaussian, mu_N, sigma_N, fixed_N)
    for name, value in gaussian.state_dict().items():
        assert torch.equal(value, expected[name]), name
    num = sum(tensor.mu.numel() for tensor in tensors(gaussian).values())
    assert len(mu_N) == num


def test_masked_gradients_are_zero_where_fixed_only(
    gaussian: nn.Sequential, x_BCHW: Tensor
) -> None:
    gaussian[6].weight.fixed[0] = True
    with sampled(gaussian, torch.Generator().manual_seed(0)):
        gaussian(x_BCHW).square().sum().backward()
    before = gaussian[6].weight.mu.grad.clone()
    fixing.mask_gradients(gaussian)
    assert not gaussian[6].weight.mu.grad[0].any()
    assert not gaussian[6].weight.sigma.grad[0].any()
    assert torch.equal(gaussian[6].weight.mu.grad[1:], before[1:])
